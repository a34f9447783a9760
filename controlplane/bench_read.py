"""Reads results: our own JSON, CSV, and rows of one JSON object per line.

A file that cannot be used is refused with file, line and column and what is expected there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controlplane.bench_csv import COLUMNS, SEPARATOR, read_csv
from controlplane.bench_kit import is_kit_row, kit_file
from controlplane.bench_records import BenchFile, BenchFileError

LARGEST_BYTES = 64 * 1024 * 1024

__all__ = ["COLUMNS", "SEPARATOR", "BenchFileError", "json_rows", "read", "text_of"]


def read(path: Path) -> BenchFile:
    """Read a results file; its content decides what it is, not its name.

    Raises:
        BenchFileError: it cannot be read, or holds something unexpected.
    """
    text = text_of(path)
    stripped = text.lstrip()
    if not stripped:
        raise BenchFileError(f"{path}:1:1: the file is empty")
    if stripped[0] != "{":
        return read_csv(path, text)
    rows = json_rows(path, text)
    if all(is_kit_row(row) for row in rows):
        try:
            return kit_file(path.name, rows)
        except ValueError as error:
            raise BenchFileError(f"{path}:{error}") from error
    if len(rows) == 1 and "points" in rows[0]:
        return _own(path, rows[0])
    raise BenchFileError(
        f"{path}:1:1: neither a specdeck benchmark nor rows with name, conc and tok_s; "
        "results of other tools go through: specdeck bench import"
    )


def text_of(path: Path) -> str:
    """A file's text.

    Raises:
        BenchFileError: it is not there, too large or no UTF-8.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BenchFileError(f"{path}: larger than {LARGEST_BYTES // 2**20} MiB")
        raw = path.read_bytes()
    except OSError as error:
        raise BenchFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise BenchFileError(f"{path}:{line}:{column}: no UTF-8 text") from error


def json_rows(path: Path, text: str, *, foreign: bool = False) -> list[dict[str, Any]]:
    """One JSON object, or one per line.

    Args:
        foreign: let NaN and Infinity pass, which other writers use outside measured figures.

    Raises:
        BenchFileError: with line and column of what is no JSON, or no object.
    """
    constant = float if foreign else _no_constant
    try:
        whole = json.loads(text, parse_constant=constant)
    except _NotFiniteError as error:
        raise BenchFileError(f"{path}: {error}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        if isinstance(error, RecursionError) or error.msg != "Extra data":
            raise BenchFileError(_json_place(path, error, 0)) from error
    else:
        if not isinstance(whole, dict):
            raise BenchFileError(f"{path}:1:1: expected a JSON object")
        return [whole]
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=constant)
        except _NotFiniteError as error:
            raise BenchFileError(f"{path}:{number}:1: {error}") from error
        except (json.JSONDecodeError, RecursionError) as error:
            raise BenchFileError(_json_place(path, error, number)) from error
        if not isinstance(row, dict):
            raise BenchFileError(f"{path}:{number}:1: expected a JSON object")
        rows.append(row)
    return rows


class _NotFiniteError(ValueError):
    pass


def _no_constant(name: str) -> float:
    raise _NotFiniteError(f"{name} is no number that can be compared")


def _json_place(path: Path, error: json.JSONDecodeError | RecursionError, line: int) -> str:
    if isinstance(error, RecursionError):
        return f"{path}:{max(line, 1)}:1: nested too deeply"
    return f"{path}:{line or error.lineno}:{error.colno}: {error.msg}"


def _own(path: Path, row: dict[str, Any]) -> BenchFile:
    try:
        return BenchFile.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise BenchFileError(f"{path}:1:1: {where}: {message}") from error
