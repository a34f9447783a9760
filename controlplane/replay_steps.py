"""The recorded controller, run again: observations and inputs in their order, same steps.  Pure.

A replay that does not know the controller's state says so and waits for the next place where it is
known: a start of the process, or a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controlplane import controller
from controlplane.basis import ControllerConfig
from controlplane.sessions_inputs import load_state, read_config, read_outcome, read_override
from controlplane.ticks import ControllerState
from store.marks import covering, downsampled
from store.records import Command, ControlInput, InputKind, Marker, Tick

FIRST_CONTACT = "before the first contact with the engine nothing is decided"
NO_STATE = "the controller's state is not known here: it starts with the next checkpoint"
HOLE = "observations are missing before this one (pruned or not recorded)"
DAMAGED = "an input before this one cannot be read"


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded tick and what the controller makes of its observation now.

    Args:
        replayed: None where that cannot be told; ``why`` says why.
        state_differs: a checkpoint after this tick holds another state than the replayed one.
    """

    recorded: Tick
    replayed: Tick | None
    command: Command | None = None
    why: str = ""
    state_differs: bool = False


class Replayer:
    """Takes inputs and ticks in order; ``state`` and ``config`` are those in force now.

    Args:
        markers: of the recording; ranges that they call down-sampled are not replayed.
    """

    def __init__(self, markers: Iterable[Marker] = ()) -> None:
        self._marks = downsampled(markers)
        self.config: ControllerConfig | None = None
        self.state: ControllerState | None = None
        self._why = NO_STATE
        self._at = 0
        self._starting = False

    def take(self, given: ControlInput) -> bool:
        """Take an input in; False if a checkpoint holds another state than the replayed one."""
        if self.state is not None and given.after_seq != self._at:
            self._lose(HOLE)
        try:
            return self._take(given)
        except ValueError:
            self._lose(DAMAGED)
            return True

    def step(self, tick: Tick) -> Step:
        """The recorded tick's observation through the same step."""
        seq = tick.observation.seq
        mark = covering(self._marks, seq)
        if mark is not None:
            self._at = seq
            self._lose(NO_STATE)
            return Step(tick, None, why=mark.text)
        if self.state is not None and seq != self._at + 1:
            self._lose(HOLE)
        self._at = seq
        if self.state is None or self.config is None:
            why = self._why if tick.policy_version else FIRST_CONTACT
            return Step(tick, None, why=why)
        self.state, replayed, command = controller.step(self.config, self.state, tick.observation)
        return Step(tick, replayed, command)

    def _take(self, given: ControlInput) -> bool:
        match given.kind:
            case InputKind.START:
                self.state, self._starting, self._at = None, True, given.after_seq
            case InputKind.CONFIG:
                self.config = read_config(given)
                if self._starting:
                    self.state, self._starting = controller.initial(self.config), False
                    self._at = given.after_seq
            case InputKind.OVERRIDE if self.state is not None:
                asked = read_override(given)
                self.state = controller.with_override(
                    self.state, asked.override, asked.at_utc_ms, asked.at_mono_ms, asked.clock_id
                )
            case InputKind.OUTCOME if self.state is not None and self.config is not None:
                self.state, _ = controller.answered(self.config, self.state, read_outcome(given))
            case InputKind.CHECKPOINT if self.config is not None:
                kept = load_state(given.body, self.config)
                before, self.state, self._at = self.state, kept, given.after_seq
                return before is None or before == kept
        return True

    def _lose(self, why: str) -> None:
        self.state, self._why = None, why


def replay(
    ticks: Iterable[Tick], inputs: Iterable[ControlInput], markers: Iterable[Marker] = ()
) -> Iterator[Step]:
    """Every recorded tick with its replay.

    Args:
        ticks: in the order of their sequence numbers.
        inputs: in the order they were taken in.
        markers: of the recording.
    """
    replayer = Replayer(markers)
    waiting = iter(inputs)
    following = next(waiting, None)
    last: Step | None = None
    for tick in ticks:
        seq, differs = tick.observation.seq, False
        while following is not None and following.after_seq < seq:
            differs |= not replayer.take(following)
            following = next(waiting, None)
        if last is not None:
            yield Step(last.recorded, last.replayed, last.command, last.why, differs)
        last = replayer.step(tick)
    if last is not None:
        yield last
