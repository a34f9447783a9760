"""Records for the store's tests: strategies for every kind, and plain ticks like an engine's."""

from __future__ import annotations

import math
import random
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from engine_patch.contract_words import Mode
from engine_patch.tier import Boundary, Thresholds, TierShape
from store.idempotency import KeptAnswer, KeptState
from store.measurements import BenchmarkPoint, CostTable
from store.observations import KvNumbers, RankTier, Sample, Source
from store.policies import (
    FixedPolicy,
    GoodputPolicy,
    HysteresisPolicy,
    PolicyConfig,
    Stance,
    Window,
)
from store.records import (
    AuditEntry,
    Clause,
    ControlInput,
    Decision,
    EngineRecord,
    EngineSwitch,
    Marker,
    Op,
    Outlook,
    Override,
    RawScrape,
    Reason,
    SessionRecord,
    Tick,
    Verdict,
)
from store.rules import FleetRule

TIERS = ("s3k1d4", "s1k1d2", "off")
_TEXT = st.text(max_size=12)
_TIER = st.sampled_from(("off", "s3k1d4", "s1k1d2", "s2k4d16"))


def _bounds(field: FieldInfo) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for mark in field.metadata:
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length"):
            if getattr(mark, name, None) is not None:
                found[name] = getattr(mark, name)
    return found


def _of_type(kind: Any, bounds: dict[str, Any]) -> st.SearchStrategy[Any]:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        if args[0] is str:
            return _TIER
        return _of_type(args[0], bounds)
    if origin in (Union, UnionType):
        return st.one_of([_of_type(arg, bounds) for arg in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(_of_type(args[0], {}), max_size=2).map(tuple)
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return records_of(kind)
    if kind is NoneType:
        return st.none()
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(bounds.get("ge", -(2**62)), bounds.get("le", 2**62))
    if kind is float:
        low = bounds.get("ge", bounds.get("gt", -1e300))
        return st.floats(low, bounds.get("le", 1e300), exclude_min="gt" in bounds, allow_nan=False)
    if kind is str:
        return st.text(min_size=bounds.get("min_length", 0), max_size=12)
    raise TypeError(f"no strategy for {kind!r}")


def records_of(model: type[BaseModel], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any record of a model, built from its fields' types and bounds; defaults stay often."""
    required, optional = {}, {}
    for name, field in model.model_fields.items():
        if name in fixed:
            strategy = fixed[name]
        elif any(isinstance(mark, AfterValidator) for mark in field.metadata):
            strategy = _TIER  # the one string with a validator is a tier's name
        else:
            strategy = _of_type(field.annotation, _bounds(field))
        if field.is_required() or name in fixed:
            required[name] = strategy
        else:
            optional[name] = strategy
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: model(**values))


_BOUNDARIES = (Boundary(up_at=16, down_at=12), Boundary(up_at=48, down_at=36))
_THRESHOLDS = st.builds(
    lambda n, dwell, floor: Thresholds(
        tiers=TIERS[:n],
        boundaries=_BOUNDARIES[: n - 1],
        min_dwell_steps=dwell,
        min_accept_length=floor,
    ),
    st.integers(1, 3),
    st.integers(1, 2**40),
    st.dictionaries(st.just("s3k1d4"), st.floats(1, 4)),
)
_SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    Thresholds: _THRESHOLDS,
    TierShape: st.sampled_from([TierShape.parse(name) for name in TIERS]),
    HysteresisPolicy: st.builds(
        lambda thresholds, hold, high: HysteresisPolicy(
            tiers=thresholds.tiers,
            boundaries=thresholds.boundaries,
            min_accept_length=thresholds.min_accept_length,
            up_hold_s=hold,
            kv_high=high,
            kv_low=high / 2,
        ),
        _THRESHOLDS,
        st.floats(0, 3600),
        st.floats(0.1, 1),
    ),
    Window: st.builds(
        Window,
        days=st.sampled_from([(), ("mon",), ("sat", "sun")]),
        start=st.sampled_from(["00:00", "22:30"]),
        end=st.sampled_from(["06:00", "23:59"]),
        stance=st.sampled_from(list(Stance)),
    ),
    GoodputPolicy: st.builds(
        GoodputPolicy,
        tiers=st.just(TIERS),
        gain=st.floats(0, 1, exclude_min=True),
        tpot_ms=st.none() | st.floats(0, 1000, exclude_min=True),
    ),
    Override: st.builds(
        lambda mode, length, **values: Override(
            mode=mode,
            tier="s3k1d4" if mode is Mode.ON else None,
            expires_utc_ms=values["created_utc_ms"] + length,
            **values,
        ),
        st.sampled_from(list(Mode)),
        st.integers(1, 2**40),
        id=st.just(0),
        engine_id=_TEXT,
        author=st.text(min_size=1, max_size=12),
        reason=st.text(min_size=1, max_size=12),
        created_utc_ms=st.integers(0, 2**60),
        granted_s=st.floats(0, 1e9, exclude_min=True),
        ended_utc_ms=st.none() | st.integers(0, 2**60),
        ended_by=_TEXT,
    ),
}

NEW = {"id": st.just(0)}
STRATEGIES: dict[type[BaseModel], st.SearchStrategy[Any]] = {
    Tick: records_of(Tick, **NEW),
    Decision: records_of(Decision, **NEW),
    EngineSwitch: records_of(EngineSwitch, **NEW),
    Override: _SPECIAL[Override],
    PolicyConfig: records_of(PolicyConfig),
    EngineRecord: records_of(EngineRecord),
    AuditEntry: records_of(AuditEntry, **NEW),
    RawScrape: records_of(RawScrape),
    ControlInput: records_of(ControlInput, **NEW),
    Marker: records_of(Marker, **NEW),
    SessionRecord: records_of(SessionRecord, **NEW),
    BenchmarkPoint: records_of(BenchmarkPoint, **NEW),
    CostTable: records_of(CostTable, **NEW),
    FleetRule: records_of(FleetRule, **NEW),
    KeptAnswer: records_of(
        KeptAnswer,
        state=st.sampled_from([KeptState.MAKING, KeptState.ANSWERED]),
        headers=st.lists(st.tuples(_TEXT, _TEXT), max_size=2).map(tuple),
        **NEW,
    ),
}


def a_tick(engine_id: str = "e1", seq: int = 1, **changed: Any) -> Tick:
    """A small tick of one engine; ``changed`` replaces fields of its sample."""
    sample = {
        "engine_id": engine_id,
        "seq": seq,
        "at_utc_ms": 1_795_000_000_000 + 500 * seq,
        "at_mono_ms": 500 * seq,
        "clock_id": "c",
        "latency_ms": 2.5,
        "source": Source.SPECULATION,
        "boot_id": "b",
        **changed,
    }
    return Tick(
        engine_id=engine_id,
        observation=Sample(**sample),
        verdict=Verdict(tier=None, reason=Reason.STEADY, text="steady"),
        stance=Stance.ACTIVE,
        policy_version=1,
        desired=None,
        desired_mode=None,
        confirmed=None,
    )


def a_decision(engine_id: str = "e1", seq: int = 1, **changed: Any) -> Decision:
    """A decision to go from off to a chain."""
    values = {
        "engine_id": engine_id,
        "seq": seq,
        "at_utc_ms": 1_795_000_000_000 + 500 * seq,
        "from_tier": "off",
        "to_tier": "s3k1d4",
        "reason": Reason.LOAD_DOWN,
        "text": "quiet",
        **changed,
    }
    return Decision(**values)


def an_override(engine_id: str = "e1", **changed: Any) -> Override:
    """An override to off for a minute."""
    values = {
        "engine_id": engine_id,
        "mode": Mode.OFF,
        "author": "op1",
        "reason": "load test",
        "created_utc_ms": 1000,
        "expires_utc_ms": 61_000,
        "granted_s": 60.0,
        **changed,
    }
    return Override(**values)


def a_policy(engine_id: str = "e1", version: int = 1, **changed: Any) -> PolicyConfig:
    """A fixed policy."""
    values = {
        "engine_id": engine_id,
        "version": version,
        "stance": Stance.ACTIVE,
        "policy": FixedPolicy(tier="off"),
        "author": "op1",
        "created_utc_ms": 1000 * version,
        **changed,
    }
    return PolicyConfig(**values)


def an_audit_entry(at_utc_ms: int = 1) -> AuditEntry:
    """An act of a person."""
    return AuditEntry(at_utc_ms=at_utc_ms, actor="op1", action="override set", target="e1")


def busy_day(count: int, ranks: int = 8) -> list[Tick]:
    """Ticks as a patched engine with ``ranks`` TP ranks yields them: all fields, numbers of full
    precision, a load that wanders through three tiers."""
    chance = random.Random(7)
    thresholds = Thresholds(tiers=TIERS, boundaries=_BOUNDARIES)
    load, current, generation, confirmed_at = 4.0, 0, 1, 0
    decoded = steps = prefilled = 0
    ticks = []
    for seq in range(1, count + 1):
        mono = 500 * seq + chance.randint(-3, 3)
        load = max(0.0, min(64.0, load + chance.gauss(0, 1.5) + 2 * math.sin(seq / 200)))
        running = int(load)
        wanted = 0 if running < 14 else 1 if running < 40 else 2
        if wanted != current and chance.random() < 0.1:
            current, generation, confirmed_at = wanted, generation + 1, mono
        tier = TIERS[current]
        accept = 3.1 + chance.gauss(0, 0.1) if current < 2 else None
        rate = running * 45 * (1 + 0.2 * chance.random())
        decoded, steps = decoded + int(rate / 2), steps + 25
        prefilled += chance.randint(0, 600)
        age = (mono - confirmed_at) / 1000
        clauses = (
            _clause("concurrency", running, "req", Op.LT, 16, held_s=age),
            _clause("accept length", accept, "tok", Op.GE, 2.6),
        )
        outlook = tuple(
            Outlook(
                tier=other,
                reason=Reason.LOAD_UP if index > current else Reason.LOAD_DOWN,
                clauses=(_clause("concurrency", running, "req", Op.GE, 48, needed_s=2.0),),
                blocked="" if age > 5 else f"dwell {5 - age:.1f} s",
            )
            for index, other in enumerate(TIERS)
            if index != current
        )
        mode = Mode.OFF if tier == "off" else Mode.ON
        sample = Sample(
            engine_id="h200-0",
            seq=seq,
            at_utc_ms=1_795_000_000_000 + mono,
            at_mono_ms=mono,
            clock_id="9f1c2f6e8b4b4c1d",
            latency_ms=2.5 + chance.expovariate(1),
            source=Source.SPECULATION,
            boot_id="6a1f0f1e-77aa-4a7b-9c60-3f0b7a3b9f10",
            concurrency=running,
            replica_concurrency=running,
            queued=max(0, running - 60),
            prefilling=chance.randint(0, 2),
            decode_tokens=decoded,
            decode_steps=steps,
            verify_steps=steps // 2,
            prefill_tokens=prefilled,
            retractions=0,
            graph_misses=3,
            accept_length=accept,
            accept_tier=tier if accept else None,
            accept_requests=25 * running,
            kv=KvNumbers(
                capacity=437_000,
                committed=running * 900 + chance.randint(0, 3000),
                evictable=chance.randint(0, 90_000),
                reserve=running * 8,
            ),
            mode=mode,
            desired_tier=tier,
            thresholds=thresholds,
            applied=tuple(
                RankTier(dp_rank=0, tp_rank=rank, tier=tier, epoch=1, generation=generation)
                for rank in range(ranks)
            ),
            engine_tier=tier,
            epoch=1,
            generation=generation,
            claim_holder="specdeck@host-1/4f2a",
            claim_remaining_s=30 - 10 * chance.random(),
            lease_remaining_s=30 - 10 * chance.random(),
        )
        verdict = Verdict(
            tier=None,
            reason=Reason.STEADY,
            text=f"concurrency {running} < 16; accept length {accept or 0:.2f} >= 2.60",
            clauses=clauses,
            outlook=outlook,
        )
        ticks.append(
            Tick(
                engine_id="h200-0",
                observation=sample,
                verdict=verdict,
                stance=Stance.ACTIVE,
                policy_version=3,
                desired=tier,
                desired_mode=mode,
                confirmed=tier,
                tier_age_s=age,
                decode_tok_s=rate,
            )
        )
    return ticks


def _clause(
    metric: str, value: float | None, unit: str, op: Op, threshold: float, **held: float
) -> Clause:
    return Clause(
        metric=metric, value=value, unit=unit, op=op, threshold=threshold, met=True, **held
    )
