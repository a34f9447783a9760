"""Read a TOML file so that a mistake can be shown with its file, line and column."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(r"(\s*)([A-Za-z0-9_.\-\"' ]+?)\s*=")
_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\s*$")


class TomlError(Exception):
    """The file cannot be read, or is no TOML; the message names file, line and column."""


def read(path: Path) -> tuple[dict[str, Any], str]:
    """Parse ``path``; returns its values and its text.

    Raises:
        TomlError: unreadable, not UTF-8 or not TOML.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise TomlError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TomlError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    return parse(text, path), text


def parse(text: str, path: Path) -> dict[str, Any]:
    """The values of a TOML text; ``path`` is named in what is wrong with it.

    Raises:
        TomlError: not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what = str(error)
        match = _AT.search(what)
        line, column = len(text.splitlines()) or 1, 1
        if match and match.group(1):
            line, column = int(match.group(1)), int(match.group(2))
        raise TomlError(f"{path}:{line}:{column}: not TOML: {_AT.sub('', what)}") from error


def _keys(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def locate(text: str, path: tuple[str | int, ...]) -> tuple[int, int] | None:
    """Line and column (from 1) where the value at ``path`` is set, or its table starts.

    ``tomllib`` keeps no positions, so the lines are walked again: headers and assignments are
    recognised, values inside multi-line arrays or strings are attributed to where they begin.
    None if no part of the path is in the text.
    """
    best: tuple[int, int] | None = None
    best_length = 0
    counts: dict[tuple[str, ...], int] = {}
    table: tuple[str | int, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            names = _keys(header.group(2))
            if header.group(1) == "[[":
                counts[names] = counts.get(names, -1) + 1
            table = _indexed(names, counts)
            column = line.index("[") + 1
            found = table
        else:
            assignment = _ASSIGNMENT.match(line)
            if assignment is None:
                continue
            found = table + _keys(assignment.group(2))
            column = len(assignment.group(1)) + 1
        if path[: len(found)] == found and len(found) > best_length:
            best, best_length = (number, column), len(found)
    return best


def _indexed(names: tuple[str, ...], counts: dict[tuple[str, ...], int]) -> tuple[str | int, ...]:
    """``names`` with the running index put behind each array of tables."""
    out: list[str | int] = []
    for length in range(1, len(names) + 1):
        out.append(names[length - 1])
        index = counts.get(names[:length])
        if index is not None:
            out.append(index)
    return tuple(out)
