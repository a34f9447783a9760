"""Rows of the measurement kit: one server, concurrency and run each.  Pure.

A row says ``name``, ``conc``, ``tok_s``, ``accept_len``, and how many requests and tokens.  The
name carries the rest: ``chain`` is topk 1 with 3 steps, ``tree`` topk 4 with 2 steps and 16 draft
tokens, ``acc2.0`` the simulated accept length, ``-fa3`` the attention backend (else triton).  All
servers of the kit ran with ``--max-running-requests 256`` and 128 prompt tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from controlplane.bench_records import PLAIN, BenchFile, BenchPoint
from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF

CAP = 256
PROMPT_TOKENS = 128
GPU = "NVIDIA H200"
ENGINE = "SGLang 0.5.17"
STEPS_ZERO = 1.1
"""A row of an adaptive server below this accept length ran at zero steps."""
_TIERS = {"chain": "s3k1d4", "tree": "s2k4d16"}
_TRUE_OFF = {"off-warm", "off-keep", "off-cold"}
_NAME = re.compile(r"(?P<profile>.+?)(?P<acc>-acc[\d.]+)?(?P<backend>-fa3)?", re.DOTALL)


def is_kit_row(row: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a row of the kit."""
    return {"name", "conc", "tok_s"} <= row.keys()


def kit_file(name: str, rows: Iterable[Mapping[str, Any]]) -> BenchFile:
    """The rows as a benchmark.

    Rows of one server, tier and concurrency are repeats.  What an adaptive controller ran while it
    changed its tier belongs to none and is left out, with a note.

    Raises:
        ValueError: a row holds something impossible; the text begins with line and column.
    """
    points: list[BenchPoint] = []
    mixed: Counter[str] = Counter()
    seen: Counter[tuple[object, ...]] = Counter()
    for line, row in enumerate(rows, 1):
        if not str(row["name"]).strip():
            raise ValueError(f"{line}:1: name: empty; it says what the server was, like plain")
        fields = _fields(str(row["name"]), row.get("accept_len"))
        if fields is None:
            mixed[str(row["name"])] += 1
            continue
        key = (*fields.values(), str(row["conc"]))
        seen[key] += 1
        requests, tokens = row.get("requests"), row.get("out_tokens")
        length: int | None = None
        if isinstance(requests, int) and isinstance(tokens, int) and requests > 0:
            length = round(tokens / requests)
        given = fields | {
            "concurrency": row["conc"],
            "tok_s": row["tok_s"],
            "repeat": seen[key],
            # An off row's accept length above 1 comes from the drains of its waves.
            "accept_length": None if fields["tier"] in (PLAIN, OFF) else row.get("accept_len"),
            "cap": CAP,
            "engine_version": ENGINE,
            "gpu": GPU,
            "input_len": PROMPT_TOKENS,
            "output_len": length,
            "seconds": row.get("seconds"),
            "requests": requests,
            "source": f"{name}:{line}",
        }
        try:
            points.append(BenchPoint.model_validate(given))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = str(first["loc"][0]) if first["loc"] else "row"
            message = str(first["msg"]).removeprefix("Value error, ")
            raise ValueError(f"{line}:1: {where}: {message}") from error
    notes = tuple(
        f"{count} rows of {server} left out: its controller changed tiers while they ran"
        for server, count in mixed.items()
    )
    return BenchFile(points=tuple(points), notes=notes)


def _fields(name: str, accept_length: object) -> dict[str, Any] | None:
    """Tier, label and backend of a server's row; None where it ran no single tier."""
    match = _NAME.fullmatch(name)
    assert match is not None
    profile = match["profile"]
    fields: dict[str, Any] = {"backend": "fa3" if match["backend"] else "triton"}
    if profile in (PLAIN, "plain-again"):
        return fields | {"tier": PLAIN, "label": ""}
    if profile in _TIERS:
        label = (match["acc"] or "").removeprefix("-")
        return fields | {"tier": _TIERS[profile], "label": label}
    if profile in _TRUE_OFF:
        label = profile.removeprefix("off-")
        return fields | {"tier": OFF, "label": label, "off_kind": OffKind.PLAIN_PATH}
    if isinstance(accept_length, int | float) and accept_length < STEPS_ZERO:
        return fields | {"tier": OFF, "label": profile, "off_kind": OffKind.ONE_TOKEN_VERIFY}
    return None
