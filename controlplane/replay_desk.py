"""One recording being replayed: its player, its readers, and who listens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from controlplane.errors import ProblemError
from controlplane.hub import Event, Hub
from controlplane.messages import EngineStatus
from controlplane.replay_messages import Verification
from controlplane.replay_player import Player, Tape
from controlplane.replay_strip import strip
from controlplane.replay_verify import verify
from controlplane.sessions_messages import (
    ReplayRequest,
    ReplayState,
    SessionInfo,
    StripAnswer,
    WhatIfRequest,
)
from controlplane.whatif_answer import Subject, answer, subject_of, with_policy
from controlplane.whatif_messages import WhatIf
from controlplane.whatif_policy import edited
from store.errors import StoreError
from store.records import EngineRecord, Override, Tick
from store.session_reader import SessionFile

ROUND_S = 0.05
MOST_EVENTS = 40
"""Ticks published in one round at most; at high speed those between are left out."""
SESSION_ID = 1


def _mono_ms() -> float:
    return time.monotonic() * 1000


class ReplayDesk:
    """Plays one session.  For one event loop.

    Args:
        now_ms: monotonic milliseconds.
    """

    def __init__(self, session: SessionFile, now_ms: Callable[[], float] = _mono_ms) -> None:
        self.session = session
        self.hub = Hub()
        self._now_ms = now_ms
        self.track = session.track()
        self.tape = Tape.of(self.track, (marker.seq for marker in session.markers()))
        if not self.tape.seqs:
            raise StoreError(f"{session.path}: nothing is recorded in it")
        self.player = Player(self.tape, since_ms=now_ms())
        engine = session.engine()
        name = session.engine_id or "recorded"
        self._engine = engine or EngineRecord(engine_id=name, url="", added_utc_ms=0)
        self._policies = {one.version: one for one in session.policies()}
        self._subject: Subject | None = None
        self._told: int | None = None
        self._asked: WhatIf | None = None
        self._unlike: tuple[int, ...] = ()

    @property
    def engine_id(self) -> str:
        """The recorded engine."""
        return self._engine.engine_id

    def info(self) -> SessionInfo:
        """What is known of the recording."""
        session, tape = self.session, self.tape
        return SessionInfo(
            id=SESSION_ID,
            name=session.meta.get("name") or session.path.stem,
            engine_id=self.engine_id,
            first_seq=session.first_seq,
            last_seq=session.last_seq,
            started_utc_ms=tape.utc_ms[0],
            ended_utc_ms=tape.utc_ms[-1],
            ticks=len(tape.seqs),
            complete=session.complete,
            redacted=session.meta.get("redacted") == "1",
            unreadable=session.unreadable,
        )

    def state(self, *, moved: bool = True) -> ReplayState:
        """Where it stands."""
        now, player, tape = self._now_ms(), self.player, self.tape
        place = player.place(now)
        return ReplayState(
            session=self.info(),
            playing=player.playing and not player.ended(now),
            speed=player.speed,
            seq=tape.seqs[place],
            at_utc_ms=tape.utc_ms[place],
            place=place,
            ticks=len(tape.seqs),
            tape_s=player.time_ms(now) / 1000,
            length_s=tape.length_ms / 1000,
            ended=player.ended(now),
            moved=moved,
            marks={mark: len(seqs) for mark, seqs in tape.marks.items()},
        )

    def order(self, request: ReplayRequest) -> ReplayState:
        """Play, pause, seek, jump."""
        now = self._now_ms()
        player, moved = self.player, True
        if request.speed is not None:
            player = player.at_speed(request.speed, now)
        if request.seq is not None:
            player = player.sought(self.tape.place_of(request.seq), now)
        elif request.at_utc_ms is not None:
            player = player.sought(self.tape.place_at(request.at_utc_ms), now)
        elif request.place is not None:
            player = player.sought(request.place, now)
        elif request.tape_s is not None:
            player = player.sought_time(request.tape_s * 1000, now)
        elif request.step is not None:
            player = player.sought(player.place(now) + request.step, now)
        elif request.jump is not None:
            jumped = player.jumped(request.jump, now, back=request.back)
            moved, player = jumped is not None, jumped or player
        if request.playing is not None:
            player = player.play(now) if request.playing else player.pause(now)
        self.player = player
        self.publish()
        return self.state(moved=moved)

    def tick(self) -> Tick | None:
        """The tick at the position."""
        return self.session.tick(self.tape.seqs[self.player.place(self._now_ms())])

    def status(self) -> EngineStatus:
        """The recorded engine as it was at the position; its clock is the recording's."""
        tick = self.tick()
        seen = None if tick is None else tick.observation.at_utc_ms
        return EngineStatus(
            engine=self._engine,
            policy=None if tick is None else self._policies.get(tick.policy_version),
            tick=tick,
            poll_s=max(self.tape.length_ms / max(len(self.tape.seqs) - 1, 1) / 1000, 0.001),
            now_utc_ms=seen or self.tape.utc_ms[0],
        )

    def override(self) -> Override | None:
        """The override in force at the position."""
        tick = self.tick()
        found = None if tick is None else tick.override
        return None if found is None or found.ended_utc_ms is not None else found

    def publish(self) -> None:
        """Hand out what the position has passed since the last time."""
        place = self.player.place(self._now_ms())
        told, self._told = self._told, place
        if told == place:
            return
        first = place if told is None or told > place else told + 1
        if not self.hub.clients:
            return
        for at in range(max(first, place - MOST_EVENTS + 1), place + 1):
            seq = self.tape.seqs[at]
            for tick in self.session.ticks(seq, seq, limit=1):
                self.hub.publish(Event(seq, tick.engine_id, tick.model_dump_json()))

    async def run(self) -> None:
        """Publish while it plays, for ever."""
        while True:
            self.publish()
            await asyncio.sleep(ROUND_S)

    def what_if(self, request: WhatIfRequest) -> WhatIf:
        """Ask another policy about the recording; the places where it parts can be jumped to.

        Raises:
            ProblemError: 422, the policy cannot be asked about this recording.
        """
        try:
            if self._subject is None:
                self._subject = subject_of(self.session)
            subject = self._subject
            base = request.policy or subject.config.policy.policy
            policy = with_policy(subject.config, edited(base, request.edits))
            found = answer(subject, policy, request.load)
        except StoreError as error:
            raise ProblemError(422, "not_possible", str(error)) from error
        self._asked = found
        self._mark_differences()
        return found

    def forget_what_if(self) -> None:
        """Take its marks and its tiers off the time line."""
        self._asked = None
        self._mark_differences()

    def verify(self) -> Verification:
        """Run the recorded policy again; where it parts from the recording can be jumped to."""
        found = verify(self.session)
        self._unlike = tuple(one.seq for one in found.differences)
        self._mark_differences()
        return found

    def strip(self, cells: int) -> StripAnswer:
        """The time line in so many cells."""
        return strip(self.track, self.tape, cells, self._asked)

    def _mark_differences(self) -> None:
        asked = () if self._asked is None else self._asked.differences
        self.tape = self.tape.with_differences((*self._unlike, *asked))
        self.player = replace(self.player, tape=self.tape)
