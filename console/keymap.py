"""Every key binding by its id: what may be remapped, and whether a map makes sense."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import _normalize_key_list

from console.config import ConsoleConfigError
from console.places import PLACES


def bindings() -> dict[str, Binding]:
    """Every binding that has an id."""
    found: dict[str, Binding] = {}
    for scope in scopes().values():
        for binding in scope:
            found.setdefault(binding.id or "", binding)
    return found


def scopes() -> dict[str, tuple[Binding, ...]]:
    """The bindings that are alive together, by screen."""
    from console.app import Console
    from console.replay_app import ReplayConsole
    from console.screens.replay import Replay
    from console.widgets.decision_log import DecisionLog
    from console.widgets.replay_parts import ReplayLog
    from console.widgets.row_list import RowList

    lists: dict[str, type[DOMNode]] = {"live": DecisionLog, "tiers": Console, "kv": Console}
    found: dict[str, tuple[Binding, ...]] = {}
    for entry in PLACES:
        module, _, name = entry.where.partition(":")
        screen = getattr(import_module(module), name)
        parts = (
            (Console, screen)
            if entry.pushed
            else (
                Console,
                screen,
                lists.get(entry.id, RowList),
            )
        )
        found[entry.id] = _together(*parts)
    # Its own keys hide those of the application, where both have the same one.
    found["replay"] = _together(ReplayConsole, Replay, ReplayLog)
    return found


def _together(*parts: type[DOMNode]) -> tuple[Binding, ...]:
    """The bindings of all parts, the last one of an id."""
    return tuple({one.id: one for part in parts for one in _own(part)}.values())


def _own(kind: type[DOMNode]) -> list[Binding]:
    found: list[Binding] = []
    for base in reversed(kind.__mro__):
        if not vars(base).get("_inherit_bindings", True):
            found.clear()
        found += [
            binding
            for binding in vars(base).get("BINDINGS", ())
            if isinstance(binding, Binding) and binding.id is not None
        ]
    return found


def check(keymap: Mapping[str, str]) -> None:
    """Refuse a map that names no binding, or gives one key to two that are alive together.

    Raises:
        ConsoleConfigError: says which.
    """
    known = bindings()
    for name, keys in keymap.items():
        if name not in known:
            raise ConsoleConfigError(
                f"keymap: there is no binding {name!r}; specdeck console --keys lists them"
            )
        if not _split(keys):
            raise ConsoleConfigError(f"keymap: {name} is left without a key")
    for screen, scope in scopes().items():
        taken: dict[str, str] = {}
        for binding in scope:
            name = binding.id or ""
            for key in _split(keymap.get(name, binding.key)):
                other = taken.setdefault(key, name)
                if other != name and (other in keymap or name in keymap):
                    raise ConsoleConfigError(
                        f"keymap: {key} is the key of {other} and of {name} on screen {screen}"
                    )


def _split(keys: str) -> tuple[str, ...]:
    # As Textual itself reads a key map: "?" is the key "question_mark".
    return tuple(key for key in _normalize_key_list(keys).split(",") if key)


def table() -> str:
    """Every id with its keys and what it does, one per line."""
    rows = sorted((name, binding) for name, binding in bindings().items())
    width = max(len(name) for name, _ in rows)
    return "".join(
        f"{name:<{width}}  {binding.key:<22}{binding.tooltip or binding.description}\n"
        for name, binding in rows
    )
