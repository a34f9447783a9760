"""What screens read beside the stream, told: a fleet, costs, policy versions, an audit.

Constructed like ``tests.console_story``; no number in it is a measurement.
"""

from __future__ import annotations

from typing import Any

from console.places import Need
from controlplane.messages import Costs, Fleet, FleetRow
from engine_patch.costs import ContextBand, StepCost
from engine_patch.tier import Boundary
from store.observations import PluginStatus
from store.policies import PolicyConfig, Stance
from store.records import AuditEntry, Reason
from tests.console_story import DEEP, ENGINE, NARROW, OFF, START_MS, alarm, policy

READ_MS = START_MS + 120_000


def row(engine_id: str, **changes: Any) -> FleetRow:
    """An engine that runs as it should."""
    known: dict[str, Any] = {
        "engine_id": engine_id,
        "group": "chat",
        "model": "Qwen/Qwen3-8B",
        "plugin": PluginStatus.PRESENT,
        "stance": Stance.ACTIVE,
        "policy": "hysteresis",
        "tiers": (DEEP, NARROW, OFF),
        "desired": DEEP,
        "confirmed": DEEP,
        "tier_age_s": 252.0,
        "reason": Reason.STEADY,
        "text": "concurrency 12 < 24 · accept length 3.05 >= 1.80",
        "concurrency": 12,
        "queued": 0,
        "decode_tok_s": 1490.0,
        "accept_length": 3.05,
        "kv_used": 0.612,
        "age_s": 0.3,
        "poll_s": 0.5,
    }
    return FleetRow(**known | changes)


def fleet(*rows: FleetRow) -> Fleet:
    """Seven engines in two groups, most states among them."""
    told = rows or (
        row(ENGINE, concurrency=25, decode_tok_s=1360.0, kv_used=0.679),
        row(
            "h200-1",
            confirmed=OFF,
            desired=OFF,
            concurrency=61,
            decode_tok_s=4210.0,
            accept_length=None,
            kv_used=0.83,
            text="concurrency 61 >= 40 held 5.0 s",
        ),
        row("h200-2", override_by="op1", override_left_s=221.0, confirmed=NARROW, desired=NARROW),
        row(
            "h200-3",
            confirmed=DEEP,
            desired=OFF,
            asked=OFF,
            concurrency=44,
            text="concurrency 44 >= 40 held 5.0 s",
        ),
        row(
            "b200-0",
            group="batch",
            confirmed=None,
            concurrency=18,
            alarms=(alarm("disagree", "automation stopped: off on rank 0, s3k1d4 on rank 1"),),
        ),
        row(
            "b200-1",
            group="batch",
            confirmed=None,
            concurrency=None,
            decode_tok_s=None,
            accept_length=None,
            kv_used=None,
            age_s=42.0,
            gap="engine unreachable: connection refused",
        ),
        row("b200-2", group="batch", stance=Stance.SHADOW, text="not measured for this setup"),
    )
    return Fleet(now_utc_ms=READ_MS, rows=told)


def costs() -> Costs:
    """Three tiers at eleven loads; one cell is interpolated."""
    found: list[StepCost] = []
    for tier, start, slope, accept in (
        (DEEP, 8.1, 0.071, 3.0),
        (NARROW, 6.9, 0.044, 1.8),
        (OFF, 5.8, 0.021, 1.0),
    ):
        found += [
            StepCost(
                tier=tier,
                bucket=batch,
                band=ContextBand.UP_TO_16K,
                samples=0 if (tier, batch) == (NARROW, 96) else 400,
                measured=(tier, batch) != (NARROW, 96),
                mean_ms=start + slope * batch,
                tokens_per_step=accept * batch,
            )
            for batch in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
        ]
    return Costs(setup_key="sglang-0.5.23_story", source="told by the engine", costs=tuple(found))


def versions() -> tuple[PolicyConfig, ...]:
    """Three versions, newest first."""
    now = policy()
    before = now.policy.model_copy(
        update={"boundaries": (Boundary(up_at=32, down_at=16), Boundary(up_at=48, down_at=32))}
    )
    second = now.model_copy(
        update={
            "version": 2,
            "policy": before,
            "author": "op2",
            "reason": "after the sweep",
            "created_utc_ms": START_MS - 90_000_000,
        }
    )
    first = second.model_copy(
        update={
            "version": 1,
            "stance": Stance.SHADOW,
            "author": "service",
            "reason": "",
            "created_utc_ms": START_MS - 95_000_000,
        }
    )
    return now, second, first


def audit() -> tuple[AuditEntry, ...]:
    """What people and the service did, newest first."""
    told = (
        ("op1", "override.set", ENGINE, "off for 600 s, guards keep: load test"),
        ("op1", "policy.set", ENGINE, "version 3, active: tighter"),
        ("op2", "stance.set", "b200-2", "shadow: new setup"),
        ("op2", "policy.set", ENGINE, "version 2, active: after the sweep"),
        ("service", "service.start", "specdeck@ops1", "version 0.1.0, 7 engines"),
    )
    return tuple(
        AuditEntry(
            id=9 - place,
            at_utc_ms=START_MS - 60_000 * place,
            actor=actor,
            action=action,
            target=target,
            detail=detail,
        )
        for place, (actor, action, target, detail) in enumerate(told)
    )


def looked() -> dict[Need, object]:
    """All of it."""
    return {
        Need.FLEET: fleet(),
        Need.COSTS: costs(),
        Need.POLICIES: versions(),
        Need.AUDIT: audit(),
    }
