"""Making the plan: which of a policy's tiers and boundaries an engine can really have.  Pure."""

from __future__ import annotations

from typing import Final

from controlplane.off_note import OffWorth, off_note
from controlplane.plan import Delegation, Goodput, Judging, Plan
from controlplane.step_table import StepTable, step_table
from engine_patch.contract import TierInfo
from engine_patch.costs import StepCost
from engine_patch.tier import OFF, Boundary, Thresholds, TierShape
from store.observations import EngineFacts
from store.policies import FixedPolicy, GoodputPolicy, HysteresisPolicy, Policy

_DEFAULTS: Final = HysteresisPolicy(tiers=(OFF,))
"""Numbers for the parts of a plan that a fixed policy does not have."""


def make_plan(
    policy: Policy,
    facts: EngineFacts,
    costs: tuple[StepCost, ...] = (),
    *,
    rules: int = 1,
    delegate: bool = False,
) -> Plan:
    """Narrow ``policy`` to the tiers that were built and that automation may pick.

    The load of a tier that drops out goes to its busier neighbour, because speculating too much
    under load costs more than speculating too little; the load of a dropped busiest tier stays
    with the one before it.

    Args:
        costs: the step-cost table of this setup.
        rules, delegate: ``PolicyConfig.rules`` and ``PolicyConfig.delegate``.
    """
    note = off_note(facts)
    warnings: list[str] = []
    if note.worth is OffWorth.WORSE:
        warnings.append(f"{note.text}: automation never picks it")
    built = {tier.name: tier for tier in facts.tiers}
    fixed = isinstance(policy, FixedPolicy)
    wanted = (policy.tier,) if isinstance(policy, FixedPolicy) else policy.tiers
    keep: list[str] = []
    for tier in wanted:
        if built and tier not in built:
            warnings.append(
                f"policy tier {tier} was not built on this engine and is left out; "
                f"built are: {', '.join(built)}"
            )
        elif not (tier == OFF and note.worth is OffWorth.WORSE):
            keep.append(tier)
    hysteresis = policy if isinstance(policy, HysteresisPolicy) else _DEFAULTS
    careful = hysteresis if isinstance(policy, FixedPolicy) else policy
    bounds = _merged(wanted, keep, hysteresis.boundaries)
    table = step_table(costs) if rules > 1 else None
    goodput = None
    lacking = ""
    if isinstance(policy, GoodputPolicy):
        table = step_table(costs)
        keep, lacking = _priced(keep, table, warnings)
        goodput = _goodput(policy, keep, table)
    cap = facts.identity.max_running_requests if facts.identity else None
    largest = {
        name: tier.max_batch
        for name, tier in built.items()
        if tier.max_batch is not None and (cap is None or tier.max_batch < cap)
    }
    if goodput is None:
        bounds = _within_batch(keep, bounds, largest, warnings)
    thresholds, delegation = None, None
    if isinstance(policy, HysteresisPolicy) and rules > 1 and len(keep) > 1 and built:
        up_most = tuple(_up_most(built[tier]) for tier in keep[:-1])
        thresholds = _thresholds(policy, keep, bounds, up_most)
        if delegate and thresholds is not None:
            lacking_auto = no_auto(facts)
            if lacking_auto:
                warnings.append(f"thresholds are applied from here: {lacking_auto}")
            else:
                delegation = Delegation(_ms(policy.adjust_every_s), policy.adjust_most, up_most)
    page = facts.identity.page_size if facts.identity else 1
    return Plan(
        fixed=fixed,
        tiers=tuple(keep),
        up_at=tuple(bound.up_at for bound in bounds),
        down_at=tuple(bound.down_at for bound in bounds),
        reserves=tuple(
            2 * built[tier].alloc_len if tier in built else TierShape.parse(tier).reserve(page)
            for tier in keep
        ),
        built={name: 2 * tier.alloc_len for name, tier in built.items()},
        floors=tuple(hysteresis.min_accept_length.get(tier) for tier in keep),
        off=keep.index(OFF) if OFF in keep else None,
        up_hold_ms=_ms(hysteresis.up_hold_s),
        down_hold_ms=_ms(hysteresis.down_hold_s),
        dwell_ms=_ms(careful.min_dwell_s),
        accept_hold_ms=_ms(hysteresis.accept_hold_s),
        accept_min_requests=careful.accept_min_requests,
        kv_high=careful.kv_high,
        kv_low=careful.kv_low,
        kv_room=(careful.kv_high + careful.kv_low) / 2,
        retraction_hold_ms=_ms(careful.retraction_hold_s),
        probe_after_ms=_ms(careful.probe_after_s),
        probe_max_ms=_ms(max(careful.probe_max_s, careful.probe_after_s)),
        grace_ms=_ms(careful.start_grace_s),
        off_word=note.word,
        not_ready=lacking or ("" if keep else _nothing_left(wanted, tuple(built), note.word)),
        warnings=tuple(warnings),
        judging=None if fixed or rules < 2 else _judging(careful),
        goodput=goodput,
        table=table,
        thresholds=thresholds,
        delegation=delegation,
    )


def no_auto(facts: EngineFacts) -> str:
    """Why this engine cannot apply thresholds by itself, "" if it can."""
    named = {one.name: one for one in facts.capabilities}
    one = named.get("auto") or named.get("switching")
    if one is None:
        return "the engine does not say that it can apply them"
    return "" if one.available else one.reason or "the engine cannot apply them"


def _up_most(tier: TierInfo) -> int | None:
    return None if tier.max_batch is None else tier.max_batch + 1


def _thresholds(
    policy: HysteresisPolicy,
    keep: list[str],
    bounds: list[Boundary],
    up_most: tuple[int | None, ...],
) -> Thresholds | None:
    """What the engine is told to apply when it is left alone; None if it would not take them."""
    taken: list[Boundary] = []
    for bound, most in zip(bounds, up_most, strict=True):
        up_at = bound.up_at if most is None else min(bound.up_at, most)
        taken.append(Boundary(up_at=up_at, down_at=min(bound.down_at, up_at - 1)))
    try:
        return Thresholds(
            tiers=tuple(keep),
            boundaries=tuple(taken),
            min_accept_length={
                tier: floor for tier, floor in policy.min_accept_length.items() if tier in keep
            },
        )
    except ValueError:
        return None


def _judging(policy: HysteresisPolicy | GoodputPolicy) -> Judging:
    return Judging(
        switches_per_hour=policy.switches_per_hour,
        cooldown_ms=_ms(policy.cooldown_s),
        judge_ms=_ms(policy.judge_s),
        settle_ms=_ms(policy.judge_settle_s),
        cold_ms=_ms(policy.cold_recovery_s),
        margin=policy.judge_margin,
        hold_off_ms=_ms(policy.hold_off_s),
        hold_off_max_ms=_ms(max(policy.hold_off_max_s, policy.hold_off_s)),
        probe_tokens=policy.probe_tokens_per_hour,
    )


def _goodput(policy: GoodputPolicy, keep: list[str], table: StepTable | None) -> Goodput:
    return Goodput(
        lead=(1 + policy.gain) / (1 - policy.switch_cost_s / policy.horizon_s),
        hold_ms=_ms(policy.hold_s),
        tpot_ms=policy.tpot_ms,
        accept=tuple(None if table is None else table.accept.get(tier) for tier in keep),
    )


def _priced(keep: list[str], table: StepTable | None, warnings: list[str]) -> tuple[list[str], str]:
    """The tiers whose steps the table knows, quiet first, and why that is not enough."""
    known = {tier for tier, _ in table.rows} if table is not None else set()
    unknown = [tier for tier in keep if tier not in known]
    found = [tier for tier in keep if tier in known]
    if not found:
        return found, (
            "goodput needs a step-cost table of this setup: run specdeck bench, "
            "or use the hysteresis policy"
        )
    if unknown:
        warnings.append(
            f"goodput leaves out {', '.join(unknown)}: the step-cost table has no steps of it"
        )
    return found, ""


def _nothing_left(wanted: tuple[str, ...], built: tuple[str, ...], off_word: str) -> str:
    named = ", ".join(off_word if tier == OFF else tier for tier in wanted)
    return (
        f"automation may use none of the policy's tiers ({named}); "
        f"give it a policy over the built ones: {', '.join(t for t in built if t != OFF) or '-'}"
    )


def _merged(
    wanted: tuple[str, ...], keep: list[str], boundaries: tuple[Boundary, ...]
) -> list[Boundary]:
    """Boundaries between the kept tiers; the first one above each kept tier survives."""
    places = [index for index, tier in enumerate(wanted) if tier in keep]
    return [boundaries[index] for index in places[:-1]] if boundaries else []


def _within_batch(
    keep: list[str],
    bounds: list[Boundary],
    largest: dict[str, int],
    warnings: list[str],
) -> list[Boundary]:
    """Lower each boundary to the batch that the quieter tier can serve at most."""
    lowered = list(bounds)
    for index in range(len(bounds) - 1, -1, -1):
        bound, most = lowered[index], largest.get(keep[index])
        above = lowered[index + 1] if index + 1 < len(bounds) else None
        up_at, down_at = bound.up_at, bound.down_at
        if most is not None and up_at > most + 1:
            up_at = max(most + 1, 1)
            warnings.append(
                f"{keep[index]} serves at most {most} running requests: "
                f"its upper boundary is {up_at} instead of {bound.up_at}"
            )
        if above is not None:
            up_at = min(up_at, max(above.up_at - 1, 1))
            down_at = min(down_at, max(above.down_at - 1, 0))
        lowered[index] = Boundary(up_at=up_at, down_at=max(min(down_at, up_at - 1), 0))
    last = largest.get(keep[-1]) if keep else None
    if last is not None:
        warnings.append(
            f"{keep[-1]} is the busiest tier of the policy and serves at most {last} running "
            "requests: give the policy a busier one"
        )
    return lowered


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
