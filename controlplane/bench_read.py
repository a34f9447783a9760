"""Reads results: our own JSON, CSV, and rows of one JSON object per line.

A file that cannot be used is refused with file, line and column and what is expected there.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controlplane.bench_kit import is_kit_row, kit_file
from controlplane.bench_records import PLAIN, BenchFile, BenchPoint
from engine_patch.tier import OFF, TierShape

REQUIRED = ("tier", "concurrency", "tok_s")
SHAPE = ("num_steps", "topk", "num_draft_tokens")
LARGEST_BYTES = 64 * 1024 * 1024
SEPARATOR = "; "
"""Between the sentences of a ``not_comparable`` cell."""
_FIELDS = frozenset(BenchPoint.model_fields) - {"source"}
COLUMNS = (
    "tier",
    *SHAPE,
    *("concurrency", "tok_s", "accept_length", "cap", "repeat"),
    *("backend", "engine_version", "gpu", "input_len", "output_len", "seconds"),
)


class BenchFileError(ValueError):
    """A results file cannot be used; the text begins with file, line and column."""


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
        return _csv(path, text)
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


def _csv(path: Path, text: str) -> BenchFile:
    if "\0" in text:
        raise BenchFileError(f"{path}:{text[: text.index(chr(0))].count(chr(10)) + 1}:1: no text")
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise BenchFileError(f"{path}:{reader.line_num}:1: no CSV: {error}") from error
    header = [name.strip() for name in rows[0][1]]
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise BenchFileError(
            f"{path}:1:1: no column {', '.join(missing)}; expected {','.join(COLUMNS)}"
        )
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise BenchFileError(f"{path}:1:1: column {', '.join(sorted(twice))} appears twice")
    ignored = [name for name in header if name not in _FIELDS and name not in SHAPE]
    points: list[BenchPoint] = []
    seen: dict[tuple[object, ...], int] = {}
    for line, row in rows[1:]:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise BenchFileError(
                f"{path}:{line}:{min(len(row), len(header)) + 1}: {len(row)} fields, the header "
                f"has {len(header)}"
            )
        cells = {name: value.strip() for name, value in zip(header, row, strict=True)}
        point = _point(path, line, header, cells, seen)
        points.append(point)
    if not points:
        raise BenchFileError(f"{path}:2:1: no rows below the header")
    notes = (f"columns not used: {', '.join(ignored)}",) if ignored else ()
    return BenchFile(points=tuple(points), notes=notes)


def _point(
    path: Path,
    line: int,
    header: list[str],
    cells: Mapping[str, str],
    seen: dict[tuple[object, ...], int],
) -> BenchPoint:
    def wrong(name: str, message: str) -> BenchFileError:
        column = header.index(name) + 1 if name in header else 1
        return BenchFileError(f"{path}:{line}:{column}: {name}: {message}")

    tier, label = _tier(cells, wrong)
    fields: dict[str, object] = {
        name: value
        for name, value in cells.items()
        if value and name in _FIELDS and name not in ("tier", "label")
    }
    fields |= {"tier": tier, "source": f"{path.name}:{line}"}
    fields["label"] = cells.get("label") or label
    if cells.get("not_comparable"):
        fields["not_comparable"] = tuple(cells["not_comparable"].split(SEPARATOR))
    if tier in (PLAIN, OFF) and cells.get("accept_length") in ("0", "0.0"):
        fields.pop("accept_length")
    identity = tuple(
        fields.get(name)
        for name in (
            *("tier", "label", "concurrency", "backend", "engine_version", "gpu"),
            *("input_len", "output_len", "off_kind", "arrivals"),
        )
    )
    if "repeat" not in fields:
        fields["repeat"] = 1 + sum(key[:-1] == identity for key in seen)
    try:
        point = BenchPoint.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "tier"
        message = str(first["msg"]).removeprefix("Value error, ")
        value = f" ({cells[name]!r})" if cells.get(name) else ""
        raise wrong(name, message + value) from error
    key = (*identity, point.repeat)
    if key in seen:
        raise wrong(
            "repeat",
            f"repeat {point.repeat} of {tier} at {point.concurrency} is also in line {seen[key]}",
        )
    seen[key] = line
    return point


def _tier(cells: Mapping[str, str], wrong: Any) -> tuple[str, str]:
    """Tier name and label: a tier column that is no tier name labels the shape's columns."""
    said = cells["tier"]
    if not said:
        raise wrong("tier", "empty; expected plain, off or a tier such as s3k1d4")
    numbers: dict[str, int] = {}
    for name in SHAPE:
        value = cells.get(name, "")
        if value:
            try:
                numbers[name] = int(value)
            except ValueError as error:
                raise wrong(name, f"{value!r} is no whole number") from error
    if said in (PLAIN, OFF):
        if numbers.get("num_steps", 0) != 0:
            raise wrong("num_steps", f"{said} drafts nothing: expected 0 or empty")
        return said, ""
    try:
        shape = TierShape.parse(said)
        label = ""
    except ValueError as error:
        if len(numbers) < len(SHAPE):
            raise wrong(
                "tier", f"{error}; or give num_steps, topk and num_draft_tokens beside it"
            ) from error
        label = said
        try:
            shape = TierShape(**numbers)
        except ValidationError as bad:
            message = str(bad.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
            raise wrong("num_steps", message) from bad
    for name, number in numbers.items():
        if getattr(shape, name) != number:
            raise wrong(name, f"{number} is not that of {shape.name}")
    return shape.name, label
