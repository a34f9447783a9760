"""Proof that a recording replays: same controller, same observations, same verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from controlplane.replay_messages import Difference, Span, Verification
from controlplane.replay_steps import Step, replay
from controlplane.replay_switches import CheckedSwitch, SwitchCheck, check_switches
from engine_patch.tier import Thresholds
from store.observations import Sample
from store.records import Tick
from store.session_reader import SessionFile

LISTED = 100
"""Differences listed; more are only counted."""
RECORDER_ALARMS = frozenset({"loop_failed", "store_failed", "send_failed"})
"""Alarms of the loop around the controller; a replay has no such loop."""
_NOT_COMPARED = frozenset({"id", "observation", "alarms"})


@dataclass
class _Tally:
    ticks: int = 0
    verified: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    thresholds: list[tuple[int, Thresholds | None]] = field(default_factory=list)
    before: int = 0

    def add(self, step: Step) -> None:
        self.ticks += 1
        seen = step.recorded.observation
        self._compare(step)
        self.before = seen.seq

    def _compare(self, step: Step) -> None:
        seen = step.recorded.observation
        if isinstance(seen, Sample) and (
            not self.thresholds or self.thresholds[-1][1] != seen.thresholds
        ):
            self.thresholds.append((seen.at_utc_ms, seen.thresholds))
        if step.replayed is None:
            self._not_verifiable(seen.seq, step.why)
            return
        found = list(differences(step.recorded, step.replayed))
        if step.state_differs:
            found.append(
                Difference(seq=seen.seq, field="state", recorded="checkpoint", replayed="another")
            )
        if found:
            self.differing += 1
            self.differences += found[: max(LISTED - len(self.differences), 0)]
        else:
            self.verified += 1

    def _not_verifiable(self, seq: int, why: str) -> None:
        last = self.spans[-1] if self.spans else None
        if last is not None and last.why == why and last.last_seq == self.before:
            update = {"last_seq": seq, "ticks": last.ticks + 1}
            self.spans[-1] = last.model_copy(update=update)
        else:
            self.spans.append(Span(first_seq=seq, last_seq=seq, ticks=1, why=why))


def differences(recorded: Tick, replayed: Tick) -> Iterator[Difference]:
    """The fields in which two ticks on one observation differ."""
    if recorded != replayed:
        for name in Tick.model_fields:
            if name not in _NOT_COMPARED:
                one, other = getattr(recorded, name), getattr(replayed, name)
                if one != other:
                    yield _difference(recorded, name, one, other)
        theirs = tuple(one for one in recorded.alarms if one.code not in RECORDER_ALARMS)
        if theirs != replayed.alarms:
            yield _difference(recorded, "alarms", theirs, replayed.alarms)


def _difference(tick: Tick, name: str, one: object, other: object) -> Difference:
    return Difference(
        seq=tick.observation.seq, field=name, recorded=str(one)[:500], replayed=str(other)[:500]
    )


def all_ticks(session: SessionFile, first: int = 0) -> Iterator[Tick]:
    """Every tick of a session, read a page at a time."""
    while True:
        page = session.ticks(first)
        yield from page
        if not page:
            if session.last_seq is None or first > session.last_seq:
                return
            first += 1000  # a whole page of damaged rows
            continue
        first = page[-1].observation.seq + 1


def verify(
    session: SessionFile, *, progress: Callable[[int], None] = lambda _: None
) -> Verification:
    """Run the recorded policy over the recorded observations and compare every verdict.

    Args:
        progress: told now and then how many ticks are done.
    """
    tally = _Tally()
    for step in replay(all_ticks(session), session.inputs(), session.markers()):
        tally.add(step)
        if tally.ticks % 1000 == 0:
            progress(tally.ticks)
    switches: list[CheckedSwitch] = check_switches(session.switches(), tally.thresholds)
    return Verification(
        ticks=tally.ticks,
        verified=tally.verified,
        differing=tally.differing,
        differences=tuple(tally.differences),
        not_verifiable=tuple(tally.spans),
        unreadable=session.unreadable,
        switches_same=sum(one.check is SwitchCheck.SAME for one in switches),
        switches_as_recorded=sum(one.check is SwitchCheck.AS_RECORDED for one in switches),
        switches_differing=tuple(
            f"switch {one.switch.entry.seq} of replica {one.switch.entry.dp_rank}: {one.text}"
            for one in switches
            if one.check is SwitchCheck.DIFFERS
        ),
    )
