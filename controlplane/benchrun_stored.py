"""Benchmarks of earlier control-plane processes, put together again from what was stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from controlplane.bench_records import BenchPoint
from controlplane.benchrun_messages import BenchState, BenchStatus
from store.db import Store
from store.measurements import BenchmarkPoint
from store.records import Marker

MARKER = "benchmark"
"""Kind of the markers that say when a benchmark began and how it ended."""
ENDS = frozenset(state.value for state in BenchState) - {BenchState.RUNNING.value}
UNFINISHED = "the control plane ended before the benchmark did; its points are kept"


def point_record(status: BenchStatus, point: BenchPoint) -> BenchmarkPoint:
    """A measured run as it is stored, with the benchmark it belongs to."""
    detail = {
        "benchmark": status.id,
        "author": status.author,
        "reason": status.reason,
        "started_utc_ms": status.started_utc_ms,
        "simulated": status.simulated,
        "prompts": status.prompts,
        "run": point.model_dump(mode="json", exclude_defaults=True),
    }
    return BenchmarkPoint(
        engine_id=status.engine_id,
        setup_key=status.setup_key,
        tier=point.tier,
        concurrency=point.concurrency,
        repeat=point.repeat,
        tok_s=point.tok_s,
        accept_length=point.accept_length,
        at_utc_ms=point.at_utc_ms or status.started_utc_ms,
        detail=json.dumps(detail, separators=(",", ":")),
    )


def marker(status: BenchStatus, at_utc_ms: int, seq: int) -> Marker:
    """What stands on the time line when a benchmark begins or ends."""
    text = f"{status.id} {status.state.value}"
    return Marker(
        engine_id=status.engine_id,
        at_utc_ms=at_utc_ms,
        seq=seq,
        kind=MARKER,
        author=status.author,
        text=f"{text}: {status.message}" if status.message else text,
    )


def stored(store: Store, engine_id: str, setup_key: str) -> list[BenchStatus]:
    """The benchmarks of this engine and setup, oldest first.  Blocks on the database."""
    ended = _ends(store.markers(engine_id))
    found: dict[str, list[tuple[dict[str, Any], BenchPoint]]] = {}
    for row in store.benchmark_points(setup_key):
        if row.engine_id != engine_id:
            continue
        try:
            detail = json.loads(row.detail)
            point = BenchPoint.model_validate(detail["run"])
            found.setdefault(str(detail["benchmark"]), []).append((detail, point))
        except (ValueError, KeyError, TypeError, ValidationError):
            continue
    out = []
    for name, rows in found.items():
        first = rows[0][0]
        state, at, message = ended.get(name, (BenchState.UNFINISHED, None, UNFINISHED))
        out.append(
            BenchStatus(
                id=name,
                engine_id=engine_id,
                state=state,
                author=str(first.get("author", "")),
                reason=str(first.get("reason", "")),
                setup_key=setup_key,
                simulated=bool(first.get("simulated")),
                started_utc_ms=int(first.get("started_utc_ms", 0)),
                ended_utc_ms=at,
                phase="ended",
                done_runs=len(rows),
                total_runs=len(rows),
                message=message,
                prompts=str(first.get("prompts", "")),
                points=tuple(point for _, point in rows),
            )
        )
    return out


def _ends(markers: Sequence[Marker]) -> dict[str, tuple[BenchState, int, str]]:
    found: dict[str, tuple[BenchState, int, str]] = {}
    for one in markers:
        words, _, message = one.text.partition(": ")
        name, _, word = words.partition(" ")
        if one.kind == MARKER and word in ENDS:
            found[name] = (BenchState(word), one.at_utc_ms, message)
    return found
