"""The settings as Markdown tables; ``python -m controlplane.settings_reference`` prints them."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from controlplane.settings import PREFIX, EngineOptions, EngineSettings, RouterSettings, Settings
from controlplane.settings_access import Listen, TokenSettings, WebhookSettings
from controlplane.settings_storage import Storage


def reference() -> str:
    """The settings as Markdown tables, for ``docs/settings.md``."""
    parts = []
    for title, model, prefix in (
        ("Top level", Settings, ""),
        ("`[listen]`", Listen, "LISTEN__"),
        ("`[storage]`", Storage, "STORAGE__"),
        ("`[[engines]]`", EngineSettings, None),
        ("`[[routers]]`", RouterSettings, None),
        ("`[[tokens]]`", TokenSettings, None),
        ("`[[webhooks]]`", WebhookSettings, None),
    ):
        rows = [f"### {title}\n", "| Key | Type and bounds | Default | Environment | Meaning |"]
        rows.append("|---|---|---|---|---|")
        # What a table adds to those it shares comes first: an engine's id and URL.
        for name in sorted(model.model_fields, key=lambda one: one not in model.__annotations__):
            field = model.model_fields[name]
            variable = "in the JSON of the list" if prefix is None else ""
            variable = variable or f"`{PREFIX}{prefix}{name.upper()}`"
            default = "required" if field.is_required() else _shown(field.default)
            kind = _kind(field.annotation) + _bounds(field.metadata)
            rows.append(f"| `{name}` | {kind} | {default} | {variable} | {field.description} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _shown(default: Any) -> str:
    if default is None:
        return "unset"
    if isinstance(default, EngineOptions):
        return "empty"
    if isinstance(default, BaseModel):
        return "see its table"
    if default in ("", ()):
        return "empty"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _kind(annotation: Any) -> str:
    names = {str: "text", int: "integer", float: "number", Path: "path", SecretStr: "text"}
    if annotation in names:
        return names[annotation]
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return "one of " + ", ".join(f"`{member}`" for member in annotation)
    arguments = [a for a in getattr(annotation, "__args__", ()) if a not in (type(None), ...)]
    if getattr(annotation, "__origin__", None) is tuple:
        inner = arguments[0]
        if getattr(inner, "__origin__", None) is Literal:
            return "list of " + ", ".join(f"`{one}`" for one in inner.__args__)
        return "list of text" if inner is str else "list of tables"
    if len(arguments) == 1:
        return _kind(arguments[0])
    return "table"


def _bounds(metadata: list[Any]) -> str:
    out = ""
    for item in metadata:
        for sign, name in ((">=", "ge"), (">", "gt"), ("<=", "le"), ("<", "lt")):
            if getattr(item, name, None) is not None:
                out += f", {sign} {getattr(item, name):g}"
        if getattr(item, "max_length", None) is not None:
            out += f", at most {item.max_length} characters"
        if getattr(item, "pattern", None):
            out += ", letters, digits, `.`, `_`, `-`"
    return out


def main() -> None:
    """Print the reference."""
    sys.stdout.write(reference())


if __name__ == "__main__":
    main()
