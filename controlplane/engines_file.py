"""Engines from a file: TOML with ``[[engines]]`` tables, or the same as JSON.

A file is never believed half written: it must name its list, and a changed one must be read twice
with the same bytes before it counts.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from controlplane import toml_file
from controlplane.errors import SourceError
from controlplane.messages import SourceKind
from controlplane.settings import EngineSettings
from controlplane.settings_access import Section

LOOK_EVERY_S = 2.0
MOST_BYTES = 8 * 1024 * 1024


class EnginesFile(Section):
    """What stands in the file; the list is mandatory, so that an empty file is no empty fleet."""

    engines: tuple[EngineSettings, ...]

    @model_validator(mode="after")
    def _once(self) -> Self:
        for what, names in (
            ("id", [engine.id for engine in self.engines]),
            ("url", [engine.url for engine in self.engines]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"engine {what} {', '.join(twice)} appears twice")
        return self


class FileSource:
    """Watches the file.

    Args:
        path: TOML, or JSON where the name ends so.
    """

    kind: SourceKind = "file"
    every_s: float = LOOK_EVERY_S
    skipped: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self.name = f"file {path}"
        self._path = path.expanduser()
        self._seen: bytes | None = None
        self._taken: bytes | None = None
        self._engines: tuple[EngineSettings, ...] = ()

    def knows(self, engine: EngineSettings) -> None:
        """An engine it named in an earlier process."""

    async def look(self) -> tuple[EngineSettings, ...] | None:
        """The engines it names; None while a change is not settled.

        Raises:
            SourceError: it cannot be read, or what it says cannot be used.
        """
        data = await asyncio.to_thread(_read, self._path)
        first, settled = self._seen is None, data == self._seen
        self._seen = data
        if data == self._taken:
            return self._engines
        if not (first or settled):
            return None
        self._engines = parse(data, self._path)
        self._taken = data
        return self._engines

    async def close(self) -> None:
        """Nothing is held open."""


def parse(data: bytes, path: Path) -> tuple[EngineSettings, ...]:
    """The engines in the text of a file.

    Raises:
        SourceError: each line names a mistake, with line and column where there is one.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    as_json = path.suffix.lower() == ".json"
    values: Any
    try:
        values = json.loads(text) if as_json else toml_file.parse(text, path)
    except toml_file.TomlError as error:
        raise SourceError(str(error)) from error
    except json.JSONDecodeError as error:
        at = f"{path}:{error.lineno}:{error.colno}"
        raise SourceError(f"{at}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of brackets.
        raise SourceError(f"{path}: cannot be read: {error}") from error
    try:
        return EnginesFile.model_validate(values).engines
    except ValidationError as error:
        lines = []
        for detail in error.errors(include_url=False, include_input=False):
            loc = detail["loc"]
            place = None if as_json else toml_file.locate(text, loc)
            where = f"{path}:{place[0]}:{place[1]}" if place else f"{path}"
            key = ".".join(str(part) for part in loc)
            message = str(detail["msg"]).removeprefix("Value error, ")
            if loc == ("engines",) and detail["type"] == "missing":
                message = "is missing; write engines = [] to look after none"
            lines.append(": ".join(part for part in (where, key, message) if part))
        raise SourceError("\n".join(lines)) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"{path}: cannot be read: {reason}") from error
    if len(data) > MOST_BYTES:
        raise SourceError(f"{path}: is larger than {MOST_BYTES // 1024 // 1024} MB")
    return data
