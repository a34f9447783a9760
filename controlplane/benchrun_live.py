"""One live engine as the subject of a benchmark: pinned by overrides, seen through its ticks.

Each pin is an override that ends by itself soon after it is needed.  When the benchmark or the
whole control plane dies, the engine's own lease ends with it and the engine goes on as before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from controlplane.benchrun_flow import FlowProcess
from controlplane.benchrun_subject import StoppedError
from controlplane.clock import SystemClock
from controlplane.errors import ProblemError
from controlplane.messages import ExtendRequest, OverrideRequest, ReleaseRequest
from controlplane.runner import Runner
from engine_patch.contract_words import Mode
from engine_patch.tier import OFF
from store.observations import EngineFacts, Gap, Sample
from store.records import Override

CONFIRM_S = 5.0
MARGIN_S = 3.0
"""Seconds a pin has beyond what it is needed for, lest a hiccup ends it."""
GRANT_S = 1.0
"""Seconds granted beyond that, lest every window extends it.  A dead benchmark holds the engine for
no longer than a window and these few seconds."""


class LiveSubject:
    """A patched engine of a running control plane.

    Args:
        flow: its load.
        author: in whose name it is pinned.
        reason: recorded with each pin.
        longest_s: the ceiling on an override's length.
    """

    def __init__(
        self,
        runner: Runner,
        flow: FlowProcess,
        clock: SystemClock,
        *,
        author: str,
        reason: str,
        longest_s: float,
    ) -> None:
        self.flow = flow
        self._runner = runner
        self._clock = clock
        self._author = author
        self._reason = reason
        self._longest_s = longest_s
        self._override: Override | None = None
        self._samples: deque[Sample] = deque(maxlen=2000)
        self._gap = ""
        self._watching = asyncio.create_task(self._watch())

    @property
    def facts(self) -> EngineFacts:
        """What is known of the engine."""
        facts = self._runner.pilot.facts
        assert facts is not None, "a benchmark begins with known facts"
        return facts

    async def pin(self, tier: str, hold_s: float) -> bool:
        """See ``Subject``."""
        self._still_ours()
        wanted = (Mode.OFF, None) if tier == OFF else (Mode.ON, tier)
        needed_s = hold_s + MARGIN_S
        pinned = self._override
        try:
            if pinned is None or (pinned.mode, pinned.tier) != wanted:
                pinned = await self._runner.desk.set_override(
                    OverrideRequest(
                        mode=wanted[0],
                        tier=wanted[1],
                        length_s=min(needed_s + GRANT_S, self._longest_s),
                        author=self._author,
                        reason=self._reason,
                    ),
                    self._author,
                )
            elif self._runner.pilot.left_s(self._clock.mono_ms()) < needed_s:
                left_s = max(self._runner.pilot.left_s(self._clock.mono_ms()), 0.0)
                extra_s = min(needed_s + GRANT_S, self._longest_s) - left_s
                if extra_s > 0:
                    extra = ExtendRequest(extra_s=extra_s, author=self._author)
                    pinned = await self._runner.desk.extend_override(extra, self._author)
        except ProblemError as problem:
            raise StoppedError(f"the engine could not be pinned: {problem.detail}") from problem
        self._override = pinned
        confirmed = await self._runner.confirmed(pinned, CONFIRM_S)
        self._still_ours()
        return confirmed

    async def release(self) -> None:
        """Let automation go on, if the pin is still ours."""
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        in_force = self._runner.pilot.override
        if self._override is None or in_force is None or in_force.id != self._override.id:
            return
        await self._runner.desk.release_override(
            ReleaseRequest(author=self._author, reason="the benchmark ended"), self._author
        )

    def samples(self) -> Sequence[Sample]:
        """See ``Subject``."""
        return tuple(self._samples)

    def trouble(self) -> str:
        """See ``Subject``."""
        return self._gap

    def look(self) -> None:
        """See ``Subject``."""
        self._runner.wake()

    def _still_ours(self) -> None:
        """Raises StoppedError when somebody else decided meanwhile."""
        mine, in_force = self._override, self._runner.pilot.override
        if mine is None:
            if in_force is not None:
                raise StoppedError(f"{in_force.author} set an override: the benchmark gave way")
            return
        if in_force is None and self._clock.utc_ms() >= mine.expires_utc_ms:
            # Nobody ended it: the engine was away for longer than it was pinned.
            self._override = None
            return
        if in_force is None:
            raise StoppedError("the benchmark's pin was released: it gave way")
        if in_force.id != mine.id:
            raise StoppedError(f"{in_force.author} set an override: the benchmark gave way")

    async def _watch(self) -> None:
        seq = 0
        while True:
            tick = await self._runner.next_tick(seq)
            seen = tick.observation
            seq = seen.seq
            if isinstance(seen, Gap):
                self._gap = seen.message
            else:
                self._gap = ""
                self._samples.append(seen)
