"""What is on the screen as CSV and JSON lines.  Pure.

CSV for spreadsheets and people: units in the column names, a missing value is an empty cell.  JSON
lines for programs: the records of ``store.records`` as they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel

from console.board import load
from console.formatting import clean
from controlplane.messages import FleetRow
from store.observations import Sample
from store.records import AuditEntry, Decision, Tick

Cell = str | float | int | None


class Form(StrEnum):
    """How it is written."""

    CSV = "csv"
    JSON_LINES = "jsonl"


def written(records: Sequence[BaseModel], form: Form) -> str:
    """The records as text, one per line.

    Raises:
        TypeError: CSV has no columns for this kind of record.
    """
    if form is Form.JSON_LINES:
        return "".join(f"{record.model_dump_json()}\n" for record in records)
    return as_csv([row(record) for record in records])


def as_csv(rows: Sequence[Mapping[str, Cell]]) -> str:
    """Rows with the same keys as CSV; "" without any."""
    if not rows:
        return ""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    for one in rows:
        writer.writerow([_cell(value) for value in one.values()])
    return out.getvalue()


def _cell(value: Cell) -> str | float | int:
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = clean(value)
    # A spreadsheet would compute a cell that begins like a formula.
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def at(utc_ms: int | None) -> str:
    """ISO time in UTC with milliseconds; "" if missing."""
    if utc_ms is None:
        return ""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=utc_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def row(record: BaseModel) -> dict[str, Cell]:
    """One record as a row.

    Raises:
        TypeError: there are no columns for this kind of record.
    """
    match record:
        case Tick():
            return _tick(record)
        case Decision():
            return _decision(record)
        case FleetRow():
            return _fleet(record)
        case AuditEntry():
            return {
                "at_utc": at(record.at_utc_ms),
                "actor": record.actor,
                "action": record.action,
                "target": record.target,
                "detail": record.detail,
            }
        case _:
            raise TypeError(f"no columns for {type(record).__name__}")


def _tick(tick: Tick) -> dict[str, Cell]:
    seen = tick.observation
    sample = seen if isinstance(seen, Sample) else None
    kv = None if sample is None else sample.kv
    return {
        "at_utc": at(seen.at_utc_ms),
        "engine": tick.engine_id,
        "observation": seen.seq,
        "gap": "" if isinstance(seen, Sample) else seen.message,
        "concurrency_req": None if sample is None else sample.concurrency,
        "busiest_replica_req": None if sample is None else load(sample),
        "queued_req": None if sample is None else sample.queued,
        "accept_length_tok": None if sample is None else sample.accept_length,
        "decode_tok_s": tick.decode_tok_s,
        "kv_used_share": None if kv is None else kv.used,
        "kv_committed_slots": None if kv is None else kv.committed,
        "kv_reserve_slots": None if kv is None else kv.reserve,
        "kv_evictable_slots": None if kv is None else kv.evictable,
        "kv_capacity_slots": None if kv is None else kv.capacity,
        "desired": tick.desired,
        "confirmed": tick.confirmed,
        "stance": tick.stance.value,
        "policy_version": tick.policy_version,
        "reason": tick.verdict.reason.value,
        "why": tick.verdict.text,
        "override_by": "" if tick.override is None else tick.override.author,
        "alarms": "; ".join(alarm.text for alarm in tick.alarms),
    }


def _decision(decision: Decision) -> dict[str, Cell]:
    return {
        "at_utc": at(decision.at_utc_ms),
        "engine": decision.engine_id,
        "observation": decision.seq,
        "from": decision.from_tier,
        "to": decision.to_tier,
        "by": decision.author,
        "reason": decision.reason.value,
        "why": decision.text,
        "outcome": decision.outcome.value,
        "latency_ms": decision.latency_ms,
        "attempts": decision.attempts,
        "message": decision.message,
    }


def _fleet(found: FleetRow) -> dict[str, Cell]:
    return {
        "engine": found.engine_id,
        "name": found.name,
        "group": found.group,
        "model": found.model,
        "desired": found.desired,
        "confirmed": found.confirmed,
        "stance": None if found.stance is None else found.stance.value,
        "why": found.text,
        "concurrency_req": found.concurrency,
        "queued_req": found.queued,
        "decode_tok_s": found.decode_tok_s,
        "accept_length_tok": found.accept_length,
        "kv_used_share": found.kv_used,
        "override_by": found.override_by,
        "alarms": "; ".join(alarm.text for alarm in found.alarms),
        "gap": found.gap,
        "age_s": found.age_s,
        "simulated": str(found.simulated).lower(),
    }
