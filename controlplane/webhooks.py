"""Signed webhooks: decisions and faults, told to other programs as they happen.

Each hook has a bounded queue and one sender, so that a slow or dead receiver holds up nothing.
The signature is ``v1=`` and HMAC-SHA256 in hex over ``TIMESTAMP.BODY`` with the hook's secret; a
receiver recomputes it and refuses old timestamps (``docs/webhooks.md``).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import httpx

from controlplane.clock import SystemClock
from controlplane.security import secret
from controlplane.settings import is_loopback
from controlplane.settings_access import WebhookSettings
from engine_patch.tier import Wire
from store.records import Alarm, Decision, Outcome, Tick

log = logging.getLogger("specdeck.webhooks")

QUEUE = 1000
"""Events a hook may lag behind; older ones are dropped, and counted."""
TRIES = 5
FIRST_WAIT_S = 0.5
TIMEOUT_S = 5.0


class HookEvent(Wire):
    """Body of one delivery.

    Args:
        id: the same for each repetition of one event, so that a receiver can leave doubles out.
        engine_id: "" for an alarm of the control plane itself.
        decision: with type ``decision``: one that was settled.
        alarm: with the alarm types.
    """

    id: str
    type: Literal["decision", "alarm.raised", "alarm.cleared"]
    engine_id: str
    at_utc_ms: int
    holder: str
    decision: Decision | None = None
    alarm: Alarm | None = None


def signature(key: bytes, timestamp: int, body: bytes) -> str:
    """The value of ``X-Specdeck-Signature``."""
    digest = hmac.new(key, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"


@dataclass
class Hook:
    """One receiver: what it wants, its key, and what waits for it."""

    url: str
    kinds: frozenset[str]
    key: bytes = field(repr=False)
    waiting: deque[HookEvent] = field(default_factory=lambda: deque(maxlen=QUEUE))
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = 0
    failed: int = 0
    dropped: int = 0

    def offer(self, event: HookEvent) -> None:
        """Queue an event if this hook wants its kind; never waits."""
        if event.type.partition(".")[0] not in self.kinds:
            return
        if len(self.waiting) == QUEUE:
            self.dropped += 1
        self.waiting.append(event)
        self.woken.set()


def hooks_of(settings: Sequence[WebhookSettings]) -> list[Hook]:
    """The configured hooks with their secrets.

    Raises:
        ConfigError: a secret cannot be read or is empty.
    """
    made: list[Hook] = []
    for one in settings:
        key = secret(f"webhook {one.url}", one.secret_file, one.secret_env)
        assert key is not None, "the settings ask for one of the two"
        made.append(Hook(one.url, frozenset(one.events), key.encode()))
    return made


class Webhooks:
    """Tells every hook what a stored tick brings.

    Args:
        holder: the name of this control plane.
    """

    def __init__(self, hooks: Sequence[Hook], holder: str, clock: SystemClock) -> None:
        self.hooks = tuple(hooks)
        self._holder = holder
        self._clock = clock
        self._alarms: dict[str, dict[str, Alarm]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start one sender per hook."""
        self._tasks = [
            asyncio.create_task(self._send_all(hook), name=f"webhook {hook.url}")
            for hook in self.hooks
        ]

    async def close(self) -> None:
        """Stop sending; what waits is given up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def told(self, tick: Tick) -> None:
        """A tick was stored: its settled decisions, and the alarms that came or went."""
        if not self.hooks:
            return
        for decision in tick.decisions:
            self.settled(decision)
        now = {alarm.code: alarm for alarm in tick.alarms}
        self._changed(tick.engine_id, now, str(tick.observation.seq))

    def stand(self, alarms: Sequence[Alarm]) -> None:
        """The alarms that are up beside the engines'; their engine id is empty."""
        # Two sources may fail at once: one code, and each since a time of its own.
        now = {f"{alarm.code}:{alarm.since_utc_ms}": alarm for alarm in alarms}
        self._changed("", now, str(self._clock.utc_ms()))

    def _changed(self, engine_id: str, now: dict[str, Alarm], stamp: str) -> None:
        """Tell the alarms that came or went since the last time."""
        if not self.hooks:
            return
        before = self._alarms.get(engine_id, {})
        for key, alarm in now.items():
            if key not in before:
                self._offer("alarm.raised", engine_id, f"{key}:{stamp}", alarm=alarm)
        for key, alarm in before.items():
            if key not in now:
                self._offer("alarm.cleared", engine_id, f"{key}:{stamp}", alarm=alarm)
        self._alarms[engine_id] = now

    def settled(self, decision: Decision) -> None:
        """A decision came to its end."""
        if self.hooks and decision.outcome is not Outcome.REQUESTED:
            name = f"{decision.seq}:{decision.outcome}"
            self._offer("decision", decision.engine_id, name, decision=decision)

    def _offer(
        self,
        kind: Literal["decision", "alarm.raised", "alarm.cleared"],
        engine_id: str,
        name: str,
        *,
        decision: Decision | None = None,
        alarm: Alarm | None = None,
    ) -> None:
        event = HookEvent(
            id=f"{engine_id}:{kind}:{name}",
            type=kind,
            engine_id=engine_id,
            at_utc_ms=self._clock.utc_ms(),
            holder=self._holder,
            decision=decision,
            alarm=alarm,
        )
        for hook in self.hooks:
            hook.offer(event)

    async def _send_all(self, hook: Hook) -> None:
        host = httpx.URL(hook.url).host
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=not is_loopback(host)) as http:
            while True:
                hook.woken.clear()
                while hook.waiting:
                    await self._deliver(http, hook, hook.waiting.popleft())
                await hook.woken.wait()

    async def _deliver(self, http: httpx.AsyncClient, hook: Hook, event: HookEvent) -> None:
        body = event.model_dump_json(exclude_none=True).encode()
        wait = FIRST_WAIT_S
        for attempt in range(1, TRIES + 1):
            timestamp = self._clock.utc_ms() // 1000
            headers = {
                "Content-Type": "application/json",
                "X-Specdeck-Event": event.type,
                "X-Specdeck-Delivery": event.id,
                "X-Specdeck-Timestamp": str(timestamp),
                "X-Specdeck-Signature": signature(hook.key, timestamp, body),
            }
            trouble = ""
            try:
                answer = await http.post(hook.url, content=body, headers=headers)
                if answer.status_code < 300:
                    hook.sent += 1
                    return
                trouble = f"answered {answer.status_code}"
            except httpx.HTTPError as error:
                trouble = type(error).__name__
            if attempt == TRIES:
                hook.failed += 1
                log.warning("webhook %s: %s given up: %s", hook.url, event.id, trouble)
                return
            with suppress(asyncio.TimeoutError):
                await asyncio.sleep(wait)
            wait *= 2
