"""What if another policy had run?  The answer over one session, and what it cannot know.

Pure but for reading the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from controlplane.basis import ControllerConfig, make_basis
from controlplane.capabilities import observing_only
from controlplane.sessions_inputs import read_config
from controlplane.setup_key import setup_key
from controlplane.whatif_arrivals import Arrivals, arrivals_of
from controlplane.whatif_costs import CostModel, accepts_of, band_of
from controlplane.whatif_estimate import (
    Ask,
    Estimate,
    LoadModel,
    under_arrivals,
    under_recorded_load,
)
from controlplane.whatif_fit import Fit, fit
from controlplane.whatif_messages import Side, Turn, WhatIf
from controlplane.whatif_moments import Moment, Moments, moments_of
from controlplane.whatif_run import (
    REDUCED,
    Course,
    Decider,
    Switch,
    differing,
    recorded_course,
    run,
)
from engine_patch.costs import StepCost
from store.errors import StoreError
from store.marks import downsampled
from store.observations import EngineFacts
from store.policies import Policy, PolicyConfig
from store.records import InputKind, Marker
from store.session_reader import SessionFile
from store.session_track import Track

LISTED = 1000
"""Switches and differences listed at most; all are counted."""


@dataclass(frozen=True)
class Subject:
    """A session made ready for questions.

    Args:
        config: the configuration in force at its end.
        model: the step-cost table with accept lengths.
        marks: ranges that are down-sampled.
    """

    name: str
    config: ControllerConfig
    moments: Moments
    model: CostModel
    fit: Fit | None
    arrivals: Arrivals | None
    recorded: Course
    marks: tuple[Marker, ...] = ()

    @property
    def follows(self) -> bool:
        """Whether the engine's KV reserve follows the tier."""
        found = {one.name: one.available for one in self.config.facts.capabilities}
        return found.get(REDUCED, False)

    @property
    def most(self) -> int | None:
        """``max_running_requests`` of the engine."""
        identity = self.config.facts.identity
        return None if identity is None else identity.max_running_requests


def subject_of(session: SessionFile, costs: Sequence[StepCost] | None = None) -> Subject:
    """Make a session ready.

    Args:
        costs: step-cost table to use; by default what was recorded with the session.

    Raises:
        StoreError: nothing is known of the engine or its policy.
    """
    config = config_of(session)
    if costs is None:
        key = setup_key(config.facts)
        tables = [one for one in session.cost_tables() if one.setup_key == key]
        costs = tables[-1].costs if tables else config.costs
    name = session.meta.get("name") or session.path.stem
    marks = downsampled(session.markers())
    return replace(subject_from(name, config, session.track(), costs), marks=marks)


def subject_from(
    name: str, config: ControllerConfig, track: Track, costs: Sequence[StepCost]
) -> Subject:
    """A subject from its parts; see ``subject_of``."""
    moments = moments_of(track)
    model = CostModel(costs, accepts_of(moments.moments, costs))
    return Subject(
        name=name,
        config=config,
        moments=moments,
        model=model,
        fit=fit(moments.moments, model),
        arrivals=arrivals_of(moments.moments),
        recorded=recorded_course(moments.moments),
    )


def config_of(session: SessionFile) -> ControllerConfig:
    """The configuration in force at the end of a session.

    Raises:
        StoreError: nothing is known of the engine or its policy.
    """
    inputs = session.inputs(kind=InputKind.CONFIG)
    if inputs:
        return read_config(inputs[-1])
    policies, engine = session.policies(), session.engine()
    if not policies or engine is None or engine.facts is None:
        raise StoreError(
            f"{session.path}: the recording knows neither the engine's facts nor its policy, so no "
            "policy can be asked about it"
        )
    facts: EngineFacts = engine.facts
    return ControllerConfig(
        policy=policies[-1], facts=facts, holder="", read_only=observing_only(facts) is not None
    )


def with_policy(config: ControllerConfig, policy: Policy, author: str = "what-if") -> PolicyConfig:
    """``policy`` as the next version of the configuration's."""
    return config.policy.model_copy(
        update={
            "policy": policy,
            "version": config.policy.version + 1,
            "author": author,
            "reason": "what if",
        }
    )


def answer(subject: Subject, policy: PolicyConfig, load: LoadModel) -> WhatIf:
    """Ask one policy about a session.

    Raises:
        StoreError: the policy cannot run on this engine, or the arrivals are not known.
    """
    basis = make_basis(subject.config.model_copy(update={"policy": policy}))
    if basis.plan.not_ready:
        raise StoreError(f"{subject.name}: {basis.plan.not_ready}")
    moments = subject.moments.moments
    arrivals = subject.arrivals
    if load is LoadModel.ARRIVALS and arrivals is None:
        raise StoreError(
            f"{subject.name}: this engine does not count finished requests, so the arrivals are "
            "not known; ask with the load as recorded"
        )
    course = run(basis, moments, follows=subject.follows)
    if load is LoadModel.ARRIVALS and arrivals is not None:
        estimate, course.tiers = under_arrivals(
            moments,
            lambda: Decider(basis, follows=subject.follows).at,
            subject.model,
            subject.fit,
            arrivals,
            most=subject.most,
        )
        course.switches = _turns(moments, course.tiers)
        best, _ = under_arrivals(
            moments,
            lambda: oracle_ask(subject, basis.plan.tiers),
            subject.model,
            subject.fit,
            arrivals,
            most=subject.most,
        )
    else:
        model, known = subject.model, subject.fit
        estimate = under_recorded_load(moments, course.tiers, model, known)
        ask = oracle_ask(subject, basis.plan.tiers)
        oracle_tiers = [ask(moment, moment.load, moment.total) for moment in moments]
        best = under_recorded_load(moments, oracle_tiers, model, known)
    measured = _measured(moments)
    parts = list(differing(moments, subject.recorded.tiers, course.tiers))
    comparable = _measured_where_covered(subject, course.tiers)
    return WhatIf(
        policy=policy,
        load=load,
        samples=len(moments),
        gaps=subject.moments.gaps,
        seconds=subject.moments.seconds,
        recorded=_side(moments, subject.recorded, measured, _regret(comparable, best)),
        what_if=_side(moments, course, estimate, _regret(estimate.tok_s, best)),
        recorded_covered_tok_s=comparable,
        oracle=best,
        first_difference=parts[0] if parts else None,
        differences=tuple(parts[:LISTED]),
        cannot_know=tuple(_cannot_know(subject, course, estimate, load)),
    )


def oracle_ask(subject: Subject, tiers: Iterable[str]) -> Ask:
    """The covered tier with the highest rate at each moment."""
    able = tuple(tiers)
    model = subject.model

    def ask(moment: Moment, load: int, total: int) -> str | None:  # noqa: ARG001
        band = band_of(moment)
        rates = [(rate.tok_s, tier) for tier in able if (rate := model.rate(tier, total, band))]
        return max(rates)[1] if rates else moment.tier

    return ask


def _turns(moments: Sequence[Moment], tiers: Sequence[str | None]) -> list[Switch]:
    turns: list[Switch] = []
    last: str | None = None
    for moment, tier in zip(moments, tiers, strict=True):
        if tier is not None and last is not None and tier != last:
            turns.append(Switch(moment.seq, moment.at_utc_ms, last, tier, "what if"))
        last = tier or last
    return turns


def _side(
    moments: Sequence[Moment], course: Course, estimate: Estimate, regret: float | None
) -> Side:
    turns = tuple(
        Turn(
            seq=one.seq,
            at_utc_ms=one.at_utc_ms,
            from_tier=one.from_tier,
            to_tier=one.to_tier,
            reason=one.reason,
        )
        for one in course.switches[:LISTED]
    )
    spent = {tier: round(seconds, 3) for tier, seconds in course.seconds_in(moments).items()}
    return Side(
        switches=len(course.switches),
        turns=turns,
        seconds_in=spent,
        estimate=estimate,
        regret=regret,
    )


def _measured(moments: Sequence[Moment]) -> Estimate:
    """What the engine's own counter says."""
    known = [one for one in moments if one.dt_ms and one.tokens is not None]
    seconds = sum(one.dt_ms for one in known) / 1000
    tok_s = sum(one.tokens or 0 for one in known) / seconds if seconds else None
    return Estimate(
        tok_s=tok_s, low=tok_s, high=tok_s, coverage=1.0 if known else 0.0, seconds=seconds
    )


def _measured_where_covered(subject: Subject, tiers: Sequence[str | None]) -> float | None:
    made = seconds = 0.0
    moments = subject.moments.moments
    for at, (moment, tier) in enumerate(zip(moments, tiers, strict=True)):
        if not moment.dt_ms or moment.tokens is None or at + 1 >= len(moments):
            continue
        batch = (moment.total + moments[at + 1].total) / 2
        rate = None if tier is None else subject.model.rate(tier, batch, band_of(moment))
        if batch <= 0 or rate is not None:
            made += moment.tokens
            seconds += moment.dt_ms / 1000
    return made / seconds if seconds else None


def _regret(tok_s: float | None, best: Estimate) -> float | None:
    if tok_s is None or not best.tok_s:
        return None
    return max(1 - tok_s / best.tok_s, 0.0)


def _cannot_know(
    subject: Subject, course: Course, estimate: Estimate, load: LoadModel
) -> Iterable[str]:
    if load is LoadModel.RECORDED:
        yield (
            "the load is taken as recorded: a faster tier would have answered sooner and left "
            "fewer requests running, a slower one more"
        )
    else:
        yield (
            "requests are taken to come when they came, whatever their answers took; which request "
            "finished when is not recorded, the first to come is taken to be the first to go"
        )
    used = {tier for tier in course.tiers if tier is not None}
    for tier in sorted(used):
        accept = subject.model.accepts.get(tier)
        if tier != "off" and accept is None:
            yield f"the accept length of {tier} is neither recorded nor in the table"
        elif accept is not None and accept.source == "table":
            yield f"the accept length of {tier} is the table's, {accept.length:.2f} tokens per step"
    if not subject.model.tiers:
        yield "there is no step-cost table for this setup: tokens per second are left out"
    elif estimate.coverage < 1:
        yield (
            f"the table covers {estimate.coverage:.0%} of the time with requests; "
            "the rest is left out"
        )
    if any(moment.retracted for moment in subject.moments.moments):
        yield "requests were retracted; under another tier they might not have been"
    for mark in subject.marks:
        yield (
            f"observations {mark.seq} to {mark.last_seq} are {mark.text}: they cannot be verified, "
            "and what a policy would have done between them is not known"
        )
    if subject.moments.gaps:
        yield f"{subject.moments.gaps} polls failed; nothing is known of that time"
    yield (
        "a change of tier is taken to cost nothing and to be obeyed at the next sample; whether "
        "one would have been taken back for bringing too little is not asked"
    )
