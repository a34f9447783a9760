"""Policies for a what-if: from a file, from edits of the recorded one, and back into a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from store.errors import StoreError
from store.policies import Policy, Stance

_POLICY: TypeAdapter[Policy] = TypeAdapter(Policy)


def read_policy(path: Path) -> Policy:
    """A policy file: TOML or JSON, the policy itself or under the key ``policy``.

    Raises:
        StoreError: it cannot be read, or says something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
        whole = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise StoreError(f"{path} cannot be read: {why}") from error
    except ValueError as error:
        raise StoreError(f"{path} is neither TOML nor JSON: {error}") from error
    return _policy(whole.get("policy", whole), str(path))


def edited(policy: Policy, edits: Iterable[str]) -> Policy:
    """The policy with some values changed.

    Args:
        edits: ``path=value``, for example ``boundaries.0.up_at=32`` or ``up_hold_s=8``.

    Raises:
        StoreError: an edit names nothing, or the result is no policy.
    """
    whole: Any = policy.model_dump(mode="json")
    for edit in edits:
        where, equals, text = edit.partition("=")
        *steps, last = where.split(".")
        place: Any = whole
        try:
            for step in steps:
                place = place[int(step)] if isinstance(place, list) else place[step]
            key: Any = int(last) if isinstance(place, list) else last
            if not equals or (isinstance(place, dict) and steps and key not in place):
                raise KeyError(where)
            if not steps and key not in type(policy).model_fields:
                raise KeyError(where)
            place[key] = _value(text)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            known = ", ".join(type(policy).model_fields)
            raise StoreError(
                f"{edit!r} changes nothing of this policy: write PATH=VALUE, for example "
                f"boundaries.0.up_at=32; values are: {known}"
            ) from error
    return _policy(whole, "the edited policy")


def policy_text(policy: Policy, comment: str) -> str:
    """A policy file: what ``specdeck what-if --policy`` reads and an engine's settings take.

    Args:
        comment: where it comes from; lines of it become comments.
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [
        "# To compute and record with it, without acting:",
        f"#   specdeck policy set ENGINE --file THIS_FILE --stance {Stance.SHADOW.value}",
        "",
        "[policy]",
    ]
    whole = policy.model_dump(mode="json")
    lines += [f"{key} = {_toml(value)}" for key, value in whole.items() if value is not None]
    return "\n".join(lines) + "\n"


def _policy(value: Any, where: str) -> Policy:
    try:
        return _POLICY.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = str(first["msg"]).removeprefix("Value error, ")
        raise StoreError(f"{where}: {place}: {what}" if place else f"{where}: {what}") from error


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items())
        return "{ " + inner + " }" if inner else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(value)
