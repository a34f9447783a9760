"""Runs as CSV: one row each, in the columns of ``docs/benchmarks.md``.  Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from controlplane.bench_records import PLAIN, BenchFile, BenchFileError, BenchPoint
from engine_patch.tier import OFF, TierShape

REQUIRED = ("tier", "concurrency", "tok_s")
SHAPE = ("num_steps", "topk", "num_draft_tokens")
SEPARATOR = "; "
"""Between the sentences of a ``not_comparable`` cell."""
_FIELDS = frozenset(BenchPoint.model_fields) - {"source"}
COLUMNS = (
    "tier",
    *SHAPE,
    *("concurrency", "tok_s", "accept_length", "cap", "repeat"),
    *("backend", "engine_version", "gpu", "input_len", "output_len", "seconds"),
)


def read_csv(path: Path, text: str) -> BenchFile:
    """The runs of a CSV.

    Args:
        path: for messages and sources only.

    Raises:
        BenchFileError: with line and field number of what is wrong.
    """
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
    found: list[_Row] = []
    for line, row in rows[1:]:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise BenchFileError(
                f"{path}:{line}:{min(len(row), len(header)) + 1}: {len(row)} fields, the header "
                f"has {len(header)}"
            )
        cells = {name: value.strip() for name, value in zip(header, row, strict=True)}
        found.append(_row(path, line, header, cells))
    if not found:
        raise BenchFileError(f"{path}:2:1: no rows below the header")
    column = header.index("repeat") + 1 if "repeat" in header else 1
    notes = [f"columns not used: {', '.join(ignored)}"] if ignored else []
    return BenchFile(points=_numbered(path, column, found, notes), notes=tuple(notes))


@dataclass(frozen=True)
class _Row:
    """A row of a CSV, and whether it says its own repeat number."""

    line: int
    run: BenchPoint
    numbered: bool

    @property
    def series(self) -> tuple[object, ...]:
        """What it has in common with its repeats at other concurrencies."""
        run = self.run
        return (run.tier, run.label, run.off_kind, *run.model_dump(include=_SETUP).values())


_SETUP = {"backend", "engine_version", "gpu", "input_len", "output_len", "arrivals", "rate_s"}
WORKLOADS_APART = 1.2
"""Runs of one tier and concurrency whose accept lengths differ by more than this factor are no
repeats of each other: they ran different prompts."""


def _numbered(
    path: Path, column: int, rows: Sequence[_Row], notes: list[str]
) -> tuple[BenchPoint, ...]:
    """The runs with their repeat numbers; different workloads get labels of their own."""
    labelled: list[_Row] = []
    groups: dict[tuple[object, ...], list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.series, []).append(row)
    labels = {row.line: label for group in groups.values() for row, label in _workloads(group)}
    if labels:
        notes.append(
            "accept lengths of one tier differ too much for repeats: taken as different workloads "
            f"({', '.join(sorted(set(labels.values())))})"
        )
    labelled = [
        replace(row, run=row.run.model_copy(update={"label": labels[row.line]}))
        if row.line in labels
        else row
        for row in rows
    ]
    points: list[BenchPoint] = []
    seen: dict[tuple[object, ...], int] = {}
    counts: dict[tuple[object, ...], int] = {}
    for row in labelled:
        run = row.run
        cell = (*row.series, run.concurrency)
        counts[cell] = counts.get(cell, 0) + 1
        if not row.numbered:
            run = run.model_copy(update={"repeat": counts[cell]})
        key = (*cell, run.repeat)
        if key in seen:
            raise BenchFileError(
                f"{path}:{row.line}:{column}: repeat: repeat {run.repeat} of {run.tier} at "
                f"{run.concurrency} is also in line {seen[key]}"
            )
        seen[key] = row.line
        points.append(run)
    return tuple(points)


def _workloads(group: Sequence[_Row]) -> list[tuple[_Row, str]]:
    """Rows with new labels where a concurrency holds accept lengths that are too far apart."""
    told = [row for row in group if row.run.accept_length is not None]
    if not any(_apart(told, at) for at in {row.run.concurrency for row in told}):
        return []
    ranked = sorted(told, key=lambda row: row.run.accept_length or 1.0)
    clusters: list[list[_Row]] = []
    for row in ranked:
        length = row.run.accept_length or 1.0
        if clusters and length <= math.sqrt(WORKLOADS_APART) * (
            clusters[-1][-1].run.accept_length or 1.0
        ):
            clusters[-1].append(row)
        else:
            clusters.append([row])
    found: list[tuple[_Row, str]] = []
    for cluster in clusters:
        middle = fmean(row.run.accept_length or 1.0 for row in cluster)
        label = f"{cluster[0].run.label} accept {middle:.1f}".strip()
        found += [(row, label) for row in cluster]
    return found


def _apart(rows: Sequence[_Row], concurrency: int) -> bool:
    """Whether runs that would have to be repeats of each other cannot be."""
    here = [row for row in rows if row.run.concurrency == concurrency]
    lengths = [row.run.accept_length or 1.0 for row in here]
    numbers = [row.run.repeat for row in here]
    said = all(row.numbered for row in here) and len(set(numbers)) == len(numbers)
    return not said and max(lengths) > WORKLOADS_APART * min(lengths)


def _row(path: Path, line: int, header: list[str], cells: Mapping[str, str]) -> _Row:
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
    try:
        run = BenchPoint.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "tier"
        message = str(first["msg"]).removeprefix("Value error, ")
        value = f" ({cells[name]!r})" if cells.get(name) else ""
        raise wrong(name, message + value) from error
    return _Row(line, run, numbered="repeat" in fields)


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
