"""What goes on around two processes that are killed: requests, and a person who steers."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.client import ControlPlaneClient, ControlPlaneError, RefusedError
from controlplane.load_http import BadAnswerError, Connection, DroppedError
from controlplane.messages import ExtendRequest, OverrideRequest, ReleaseRequest
from engine_patch.contract_words import Mode
from store.records import Override
from tests.controlplane_rig import ENGINE


class Traffic:
    """Requests at the engine, few or many at a time; goes on whoever is killed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.wanted = 0
        self.answered = 0

    async def run(self, most: int = 16) -> None:
        """Send for ever."""
        await asyncio.gather(*(self._one(place) for place in range(most)))

    async def _one(self, place: int) -> None:
        connection = Connection("127.0.0.1", self._port)
        body = {"input_ids": [7] * 16, "sampling_params": {"max_new_tokens": 64}}
        request = connection.encode("POST", "/generate", json.dumps(body).encode())
        try:
            while True:
                if place >= self.wanted:
                    await asyncio.sleep(0.02)
                    continue
                try:
                    await connection.exchange(request)
                    self.answered += 1
                except (OSError, BadAnswerError, DroppedError):
                    connection.close()
                    await asyncio.sleep(0.05)
        finally:
            connection.close()


def extension(before: Override, extra_ms: int) -> Callable[[Override | None], bool]:
    """Whether an override is ``before`` with a later end.

    The end moves by what is left on the monotonic clock, so a few milliseconds may go astray.
    """

    def is_longer(one: Override | None) -> bool:
        if one is None or one.id != before.id:
            return False
        return abs(one.expires_utc_ms - before.expires_utc_ms - extra_ms) < 50

    return is_longer


@dataclass
class Person:
    """Sets, extends and releases overrides, and remembers what was acknowledged.

    Args:
        sure: the override in force by the last acknowledged answer.
        doubtful: what else may be in force, because an answer was lost.
    """

    chance: random.Random
    sure: Override | None = None
    doubtful: list[Callable[[Override | None], bool]] = field(default_factory=list)
    acknowledged: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    lost: int = 0

    async def act(self, client: ControlPlaneClient) -> None:
        """One random action."""
        before = self.sure
        kind = self.chance.choice(("set", "set", "extend", "release"))
        if before is None or before.expires_utc_ms < time.time() * 1000 + 2000:
            kind = "set"
        try:
            if kind == "set":
                mode = self.chance.choice((Mode.OFF, Mode.ON))
                reason = f"action {len(self.reasons)}"
                self.reasons.append(reason)
                length_s = self.chance.choice((0.5, 2.0, 60.0, 600.0))
                request = OverrideRequest(
                    mode=mode, length_s=length_s, author="alice", reason=reason
                )
                ends_ms = time.time() * 1000 + 1000 * length_s
                self.doubtful = [
                    lambda one: one is not None and one.reason == reason,
                    lambda one: one is None and time.time() * 1000 >= ends_ms,
                ]
                self.sure = await client.set_override(ENGINE, request)
                assert self.sure is not None
                assert self.sure.reason == reason
            elif kind == "extend":
                assert before is not None
                longer = extension(before, 5000)
                self.doubtful = [longer]
                request = ExtendRequest(extra_s=5.0, author="alice", reason="longer")
                self.sure = await client.extend_override(ENGINE, request)
                assert longer(self.sure)
            else:
                self.doubtful = [lambda one: one is None]
                request = ReleaseRequest(author="alice", reason="enough")
                self.sure = await client.release_override(ENGINE, request)
            self.acknowledged[kind] += 1
            self.doubtful = []
        except RefusedError as error:
            ran_out = before is not None and before.expires_utc_ms < time.time() * 1000 + 2000
            if error.problem is None or error.problem.code != "no_override" or not ran_out:
                raise
            self.sure, self.doubtful = None, []
        except ControlPlaneError:
            self.lost += 1
        except asyncio.CancelledError:
            self.lost += 1
            raise

    def found(self, now: Override | None) -> None:
        """Compare what is in force after a restart with what was acknowledged."""
        over = self.sure is not None and self.sure.expires_utc_ms <= time.time() * 1000
        fits = now == self.sure or (over and now is None)
        assert fits or any(may_be(now) for may_be in self.doubtful), (
            f"in force is {now}, acknowledged was {self.sure}, {len(self.doubtful)} in doubt"
        )
        self.sure, self.doubtful = now, []
