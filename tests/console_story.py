"""Two minutes of an engine, told in ticks: constructed records for frames and board tests.

The load swings from quiet to busy and back; the engine goes off, comes back, and misses a few
polls.  Every number is plausible for an 8B model on one H200 and none of them is a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from controlplane.messages import EngineStatus
from engine_patch.contract import Identity, TierInfo, Versions
from engine_patch.contract_words import Mode, OffKind
from engine_patch.tier import Boundary, TierShape
from store.observations import (
    EngineFacts,
    Gap,
    GapReason,
    KvNumbers,
    PluginStatus,
    RankTier,
    Sample,
    Source,
)
from store.policies import HysteresisPolicy, PolicyConfig, Stance
from store.records import (
    Alarm,
    Clause,
    Decision,
    EngineRecord,
    Guards,
    Op,
    Outcome,
    Outlook,
    Override,
    Reason,
    Tick,
    Verdict,
)

ENGINE = "h200-0"
START_MS = 1_795_953_751_000  # 2026-11-29 12:02:31 UTC
DEEP, NARROW, OFF = "s3k1d4", "s1k1d2", "off"
BOOT = "5f0c1a52"


def tier_info(name: str, off_kind: OffKind = OffKind.PLAIN_PATH) -> TierInfo:
    """A built tier."""
    shape = TierShape.parse(name)
    return TierInfo(
        name=name,
        num_steps=shape.num_steps,
        topk=shape.topk,
        num_draft_tokens=shape.num_draft_tokens,
        off_kind=off_kind if name == OFF else None,
        alloc_len=shape.alloc_len(),
        memory_bytes=210 * 2**20,
    )


def facts(**changes: Any) -> EngineFacts:
    """One H200 with an 8B model and three tiers."""
    known: dict[str, Any] = {
        "boot_id": BOOT,
        "plugin": PluginStatus.PRESENT,
        "protocol": 1,
        "versions": Versions(engine="sglang", engine_version="0.5.23", plugin_version="0.1.0"),
        "identity": Identity(
            model="Qwen/Qwen3-8B",
            draft_model="Tengyunw/qwen3_8b_eagle3",
            algorithm="EAGLE3",
            dtype="bfloat16",
            gpu="NVIDIA H200",
            gpu_count=2,
            tp_size=2,
            attention_backend="fa3",
            requested_max_running_requests=64,
            max_running_requests=64,
            cap_origin="flag",
            kv_capacity=420_000,
        ),
        "tiers": tuple(tier_info(name) for name in (DEEP, NARROW, OFF)),
        "launch_tier": DEEP,
        "off_kind": OffKind.PLAIN_PATH,
    }
    return EngineFacts(**known | changes)


def policy(stance: Stance = Stance.ACTIVE) -> PolicyConfig:
    """Hysteresis over the three tiers."""
    return PolicyConfig(
        engine_id=ENGINE,
        version=3,
        stance=stance,
        policy=HysteresisPolicy(
            tiers=(DEEP, NARROW, OFF),
            boundaries=(Boundary(up_at=24, down_at=16), Boundary(up_at=40, down_at=32)),
            up_hold_s=5.0,
            down_hold_s=5.0,
            min_accept_length={DEEP: 1.8},
        ),
        author="op1",
        created_utc_ms=START_MS - 86_400_000,
    )


def status(
    engine_id: str = ENGINE, known: EngineFacts | None = None, stance: Stance = Stance.ACTIVE
) -> EngineStatus:
    """What the control plane says of the engine."""
    return EngineStatus(
        engine=EngineRecord(
            engine_id=engine_id,
            url="http://127.0.0.1:30000",
            name=engine_id,
            facts=known or facts(),
            added_utc_ms=START_MS,
        ),
        policy=policy(stance),
        poll_s=0.5,
        now_utc_ms=START_MS,
    )


def wave(second: float) -> int:
    """Running requests: quiet, then busy, quiet again, and at the end on its way up."""
    if second > 117.5:
        return 25
    return max(round(17 + 12 * math.sin((second - 28) / 14) + 2 * math.sin(second)), 0)


def sample(second: float, tier: str = DEEP, **changes: Any) -> Sample:
    """One successful poll ``second`` seconds into the story."""
    running = wave(second)
    committed = 180_000 + 4_200 * running
    known: dict[str, Any] = {
        "engine_id": ENGINE,
        "seq": 1000 + round(second * 2),
        "at_utc_ms": START_MS + round(second * 1000),
        "at_mono_ms": 50_000 + round(second * 1000),
        "clock_id": "story",
        "latency_ms": 2.4,
        "source": Source.SPECULATION,
        "boot_id": BOOT,
        "concurrency": running,
        "replica_concurrency": running,
        "queued": max(running - 28, 0),
        "prefilling": 0,
        "decode_tokens": round(second * 1400),
        "decode_steps": round(second * 90),
        "verify_steps": round(second * 60),
        "retractions": 0,
        "accept_length": None if tier == OFF else 3.42 - 0.02 * running,
        "accept_tier": None if tier == OFF else tier,
        "accept_requests": 640,
        "kv": KvNumbers(
            capacity=420_000,
            committed=committed,
            evictable=61_000,
            reserve=running * TierShape.parse(tier).reserve(),
        ),
        "mode": Mode.OFF if tier == OFF else Mode.ON,
        "desired_tier": tier,
        "applied": tuple(
            RankTier(dp_rank=0, tp_rank=rank, tier=tier, epoch=1, generation=37)
            for rank in range(2)
        ),
        "engine_tier": tier,
        "epoch": 1,
        "generation": 37,
        "claim_holder": "specdeck@ops1",
        "lease_remaining_s": 28.5,
    }
    return Sample(**known | changes)


def clause(metric: str, value: float | None, op: Op, threshold: float, **more: Any) -> Clause:
    """A clause in requests, met unless said otherwise."""
    return Clause(
        **{"metric": metric, "value": value, "op": op, "threshold": threshold}
        | {"unit": "req", "met": True}
        | more
    )


def verdict(running: int) -> Verdict:
    """Why the deep tier stays, and what the other two need."""
    low = clause("accept length", 3.05, Op.LT, 1.8, unit="tok", needed_s=10.0, met=False)
    return Verdict(
        tier=None,
        reason=Reason.STEADY,
        text=f"concurrency {running} >= 24 held 1.9 s of 5.0 s · accept length 3.05 >= 1.80",
        clauses=(
            clause("concurrency", running, Op.GE, 24, held_s=1.9, needed_s=5.0, met=False),
            clause("accept length", 3.05, Op.GE, 1.8, unit="tok"),
        ),
        outlook=(
            Outlook(
                tier=NARROW,
                reason=Reason.LOAD_UP,
                clauses=(
                    clause("concurrency", running, Op.GE, 24, held_s=1.9, needed_s=5.0, met=False),
                ),
            ),
            Outlook(
                tier=OFF,
                reason=Reason.LOAD_UP,
                clauses=(clause("concurrency", running, Op.GE, 40, needed_s=5.0, met=False),),
            ),
            Outlook(tier=NARROW, reason=Reason.ACCEPT_FLOOR, clauses=(low,)),
        ),
    )


def decision(second: float, before: str, after: str, **changes: Any) -> Decision:
    """A decision that was confirmed, unless said otherwise."""
    up = after != DEEP
    known: dict[str, Any] = {
        "engine_id": ENGINE,
        "seq": 1000 + round(second * 2),
        "at_utc_ms": START_MS + round(second * 1000),
        "from_tier": before,
        "to_tier": after,
        "reason": Reason.LOAD_UP if up else Reason.LOAD_DOWN,
        "text": "concurrency 25 >= 24 held 5.0 s" if up else "concurrency 15 <= 16 held 5.0 s",
        "clauses": (
            clause("concurrency", 25, Op.GE, 24, held_s=5.0, needed_s=5.0)
            if up
            else clause("concurrency", 15, Op.LE, 16, held_s=5.0, needed_s=5.0),
        ),
        "outcome": Outcome.CONFIRMED,
        "latency_ms": 184.0,
        "attempts": 1,
        "epoch": 1,
        "generation": 37,
        "settled_utc_ms": START_MS + round(second * 1000) + 184,
    }
    return Decision(**known | changes)


def tick(seen: Sample | Gap, tier: str | None = DEEP, **changes: Any) -> Tick:
    """The controller's step on ``seen``."""
    second = (seen.at_utc_ms - START_MS) / 1000
    known: dict[str, Any] = {
        "id": seen.seq,
        "engine_id": seen.engine_id,
        "observation": seen,
        "verdict": verdict(wave(second)),
        "stance": Stance.ACTIVE,
        "policy_version": 3,
        "desired": tier,
        "desired_mode": Mode.OFF if tier == OFF else Mode.ON,
        "confirmed": tier if isinstance(seen, Sample) else None,
        "tier_age_s": 252.0,
        "decode_tok_s": 160.0 + 48.0 * wave(second) if isinstance(seen, Sample) else None,
        "stale_s": 0.0,
    }
    return Tick(**known | changes)


def gap(second: float, message: str = "engine unreachable: connection refused") -> Gap:
    """A poll that failed."""
    return Gap(
        engine_id=ENGINE,
        seq=1000 + round(second * 2),
        at_utc_ms=START_MS + round(second * 1000),
        at_mono_ms=50_000 + round(second * 1000),
        clock_id="story",
        reason=GapReason.UNREACHABLE,
        message=message,
    )


def tier_at(second: float) -> str:
    """What runs when: narrow while it is busy."""
    return NARROW if 38 <= second < 74 else DEEP


def story(until_s: float = 120.0) -> list[Tick]:
    """The ticks of the story at two per second, eleven seconds of gaps among them."""
    told: list[Tick] = []
    for half in range(round(until_s * 2) + 1):
        second = half / 2
        if 80 <= second < 91:
            told.append(tick(gap(second), None, stale_s=second - 79.5, desired=DEEP))
            continue
        made: tuple[Decision, ...] = ()
        if second == 38:
            made = (decision(38, DEEP, NARROW, latency_ms=201.0),)
        if second == 74:
            made = (decision(74, NARROW, DEEP),)
        told.append(tick(sample(second, tier_at(second)), tier_at(second), decisions=made))
    return told


def past() -> Sequence[Decision]:
    """What was decided before the story began."""
    return (
        decision(
            -302,
            DEEP,
            OFF,
            outcome=Outcome.REFUSED,
            message="dwell 9.0 s left",
            latency_ms=None,
        ),
        decision(
            -620,
            DEEP,
            OFF,
            author="op1",
            reason=Reason.OVERRIDE,
            text='override "load test" by op1, 10m',
            clauses=(),
            latency_ms=190.0,
        ),
        decision(
            -20,
            OFF,
            DEEP,
            reason=Reason.OVERRIDE_ENDED,
            text='override "load test" by op1 expired',
            clauses=(),
            latency_ms=176.0,
        ),
    )


def override(left_s: float = 221.0, granted_s: float = 600.0, at_s: float = 120.0) -> Override:
    """An override in force, with so much time left ``at_s`` into the story."""
    expires = START_MS + round((at_s + left_s) * 1000)
    return Override(
        id=7,
        engine_id=ENGINE,
        mode=Mode.ON,
        tier=DEEP,
        author="op1",
        reason="load test",
        guards=Guards.KEEP,
        created_utc_ms=expires - round(granted_s * 1000),
        expires_utc_ms=expires,
        granted_s=granted_s,
    )


def alarm(code: str, text: str) -> Alarm:
    """An alarm since the story's end."""
    return Alarm(code=code, text=text, since_utc_ms=START_MS + 120_000)
