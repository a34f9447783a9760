"""The thresholds of least regret over many sessions, with hold-out, progress and cancel."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from controlplane.basis import make_basis
from controlplane.whatif_answer import Subject, oracle_ask, subject_of, with_policy
from controlplane.whatif_estimate import under_recorded_load
from controlplane.whatif_policy import edited
from controlplane.whatif_run import run
from engine_patch.costs import StepCost
from engine_patch.tier import Frozen
from store.errors import StoreError
from store.policies import Policy
from store.session_reader import SessionFile

MOST_POINTS = 20_000
Axis = tuple[str, tuple[str, ...]]
"""A value of the policy (``boundaries.0.up_at``) and what it is tried with."""


class Score(Frozen):
    """How one policy did.

    Args:
        regret: share of the oracle's tokens that it missed, over all sessions, by covered time.
        coverage: share of the time with requests that the tables cover.
        switches: changes of tier in all sessions.
    """

    edits: tuple[str, ...]
    policy: Policy
    regret: float
    coverage: float
    switches: int


class GridAnswer(Frozen):
    """What a grid found.

    Args:
        best: the point of least regret over the sessions it was chosen on.
        held_out: the same policy over the sessions it was not chosen on; None without any.
        recorded, recorded_held_out: the recorded policy of each session, over the same sessions.
        points: how many were tried; ``left_out`` contradict themselves (``down_at >= up_at``).
        cancelled: it was stopped; ``best`` is the best of what had been tried.
    """

    best: Score
    held_out: Score | None
    recorded: Score
    recorded_held_out: Score | None
    points: int
    left_out: int
    cancelled: bool
    sessions: tuple[str, ...]
    sessions_held_out: tuple[str, ...]


@dataclass
class _Known:
    subjects: list[Subject]
    oracles: list[float]


_known: _Known | None = None
"""What a worker process is asked about, made once."""


def parse_axis(text: str) -> Axis:
    """``boundaries.0.up_at=16:64:8`` (from, to, step) or ``up_hold_s=1,2,4``.

    Raises:
        StoreError: it is neither.
    """
    where, equals, values = text.partition("=")
    try:
        if not equals or not values:
            raise ValueError(text)
        if ":" in values:
            first, last, step = (float(part) for part in values.split(":"))
            if step <= 0 or last < first:
                raise ValueError(text)
            count = int((last - first) / step + 1e-9) + 1
            found = [first + step * index for index in range(count)]
        else:
            found = [float(part) for part in values.split(",")]
    except ValueError as error:
        raise StoreError(
            f"{text!r} is no axis: write PATH=FROM:TO:STEP or PATH=VALUE,VALUE,..."
        ) from error
    return where, tuple(f"{value:g}" for value in found)


def points_of(
    base: Policy, axes: Sequence[Axis]
) -> Iterator[tuple[tuple[str, ...], Policy | None]]:
    """Every point with its policy; None where it contradicts itself.

    Raises:
        StoreError: an axis names nothing of this policy, or there are too many points.
    """
    count = 1
    for where, values in axes:
        count *= len(values)
        edited(base, [f"{where}={_of(base, where)}"])  # names something
    if count > MOST_POINTS:
        raise StoreError(f"{count} points are too many: at most {MOST_POINTS}")
    for combination in itertools.product(*(values for _, values in axes)):
        edits = tuple(f"{axis[0]}={value}" for axis, value in zip(axes, combination, strict=True))
        try:
            yield edits, edited(base, edits)
        except StoreError:
            yield edits, None


def _of(base: Policy, where: str) -> str:
    place: object = base.model_dump(mode="json")
    for step in where.split("."):
        try:
            if isinstance(place, list):
                place = place[int(step)]
            elif isinstance(place, dict):
                place = place[step]
        except (KeyError, IndexError, ValueError) as error:
            raise StoreError(f"the policy has no value {where!r}") from error
    return str(place)


def search(
    paths: Sequence[Path],
    base: Policy,
    axes: Sequence[Axis],
    *,
    costs: tuple[StepCost, ...] | None = None,
    hold_out: float = 0.0,
    workers: int = 2,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> GridAnswer:
    """Try every point.

    Args:
        hold_out: share of the sessions, the newest ones, that the choice is not made on.
        progress: told how many points are done, of how many; a KeyboardInterrupt it lets through
            ends the search with the best point so far.

    Raises:
        StoreError: a session cannot be read or its table covers nothing, or no point is a policy.
    """
    ordered = sorted(paths, key=_begins)
    held = round(len(ordered) * hold_out)
    chosen, kept = ordered[: len(ordered) - held], ordered[len(ordered) - held :]
    if not chosen:
        raise StoreError("no session is left to choose on: hold out fewer")
    points = list(points_of(base, axes))
    able = [(edits, policy) for edits, policy in points if policy is not None]
    if not able:
        raise StoreError("no point of the grid is a policy: down_at must lie below up_at")
    scores: list[Score] = []
    cancelled = False
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        max_workers=workers, mp_context=context, initializer=_begin, initargs=(chosen, costs)
    )
    try:
        waiting = [pool.submit(_score, edits, policy) for edits, policy in able]
        for done in as_completed(waiting):
            scores.append(done.result())
            progress(len(scores), len(able))
    except KeyboardInterrupt:
        cancelled = True
        if not scores:
            raise
    finally:
        pool.shutdown(wait=not cancelled, cancel_futures=True)
    best = min(scores, key=lambda one: (one.regret, one.switches, one.edits))
    _begin(chosen, costs)
    recorded = _recorded_score()
    held_out = recorded_held_out = None
    if kept:
        _begin(kept, costs)
        held_out, recorded_held_out = _score(best.edits, best.policy), _recorded_score()
    return GridAnswer(
        best=best,
        held_out=held_out,
        recorded=recorded,
        recorded_held_out=recorded_held_out,
        points=len(scores),
        left_out=len(points) - len(able),
        cancelled=cancelled,
        sessions=tuple(path.name for path in chosen),
        sessions_held_out=tuple(path.name for path in kept),
    )


def _begins(path: Path) -> tuple[int, str]:
    with SessionFile.open(path) as session:
        first = session.tick(session.first_seq or 0)
        return (0 if first is None else first.observation.at_utc_ms, path.name)


def _begin(paths: Sequence[Path], costs: tuple[StepCost, ...] | None) -> None:
    global _known
    subjects, oracles = [], []
    for path in paths:
        with SessionFile.open(path) as session:
            subject = subject_of(session, costs)
        moments = subject.moments.moments
        ask = oracle_ask(subject, [tier.name for tier in subject.config.facts.tiers])
        tiers = [ask(moment, moment.load, moment.total) for moment in moments]
        best = under_recorded_load(moments, tiers, subject.model, subject.fit)
        if best.tok_s is None:
            raise StoreError(
                f"{path}: no step-cost table covers this session; give one with --table, or run "
                "specdeck bench"
            )
        subjects.append(subject)
        oracles.append(best.tok_s * best.seconds)
    _known = _Known(subjects, oracles)


def _score(edits: tuple[str, ...], policy: Policy) -> Score:
    assert _known is not None
    made = best = busy = 0.0
    switches = 0
    for subject, oracle in zip(_known.subjects, _known.oracles, strict=True):
        version = with_policy(subject.config, policy)
        basis = make_basis(subject.config.model_copy(update={"policy": version}))
        if basis.plan.not_ready:
            raise StoreError(f"{subject.name}: {basis.plan.not_ready}")
        moments = subject.moments.moments
        course = run(basis, moments, follows=subject.follows)
        found = under_recorded_load(moments, course.tiers, subject.model, subject.fit)
        made += (found.tok_s or 0.0) * found.seconds
        best += oracle
        busy += found.coverage
        switches += len(course.switches)
    coverage = busy / len(_known.subjects)
    regret = max(1 - made / best, 0.0)
    return Score(edits=edits, policy=policy, regret=regret, coverage=coverage, switches=switches)


def _recorded_score() -> Score:
    assert _known is not None
    made = best = coverage = 0.0
    switches = 0
    for subject, oracle in zip(_known.subjects, _known.oracles, strict=True):
        moments = subject.moments.moments
        tiers = subject.recorded.tiers
        found = under_recorded_load(moments, tiers, subject.model, subject.fit)
        made += (found.tok_s or 0.0) * found.seconds
        best += oracle
        coverage += found.coverage / len(_known.subjects)
        switches += len(subject.recorded.switches)
    policy = _known.subjects[-1].config.policy.policy
    return Score(
        edits=(),
        policy=policy,
        regret=max(1 - made / best, 0.0),
        coverage=coverage,
        switches=switches,
    )
