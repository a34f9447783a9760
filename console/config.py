"""The console's own settings file: theme, names, keys.  Command line options win over it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from engine_patch.tier import Frozen

VARIABLE = "SPECDECK_CONSOLE_CONFIG"


class ConsoleConfigError(Exception):
    """The file cannot be used; the message says where and what to write."""


class ConsoleConfig(Frozen):
    """What the file may hold.

    Args:
        theme: name of the theme to begin with.
        ascii: draw with ASCII alone.
        utc: show times in UTC.
        readonly: look, change nothing.
        author: who acts.
        bell: ring for faults and for overrides that end within 30 s.
        keymap: keys by binding id; several are separated by commas.
    """

    theme: str = ""
    ascii: bool = False
    utc: bool = False
    readonly: bool = False
    author: str = Field(default="", max_length=200)
    bell: bool = True
    keymap: dict[str, str] = Field(default_factory=dict)


def default_path(environment: Mapping[str, str]) -> Path:
    """Where the file is unless it is named: ``~/.config/specdeck/console.toml``."""
    base = environment.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if base else Path.home() / ".config"
    return folder / "specdeck" / "console.toml"


def read_config(path: Path | None) -> ConsoleConfig:
    """The file's settings; those of a missing default file are the usual ones.

    Raises:
        ConsoleConfigError: it cannot be read, is no TOML, or has an unknown key or value.
    """
    named = path or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    file = named or default_path(os.environ)
    try:
        text = file.expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        if named is None:
            return ConsoleConfig()
        raise ConsoleConfigError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConsoleConfigError(f"{file}: cannot be read: {reason}") from None
    try:
        found = ConsoleConfig.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConsoleConfigError(f"{file}: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        known = ", ".join(ConsoleConfig.model_fields)
        raise ConsoleConfigError(f"{file}: {key}: {first['msg']}; keys are: {known}") from None
    return found
