"""The loop around one engine: poll, step, store, act, publish.

A slow engine holds up nobody else, and a command is sent in the background so that polling goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from controlplane.desk import Desk
from controlplane.engine import EngineClient
from controlplane.hub import Event
from controlplane.known import Known
from controlplane.messages import EngineStatus
from controlplane.pace import phase_ms
from controlplane.pilot import Pilot, obeyed
from controlplane.recording import Recorder
from controlplane.restoring import restore
from controlplane.sending import Sender
from controlplane.settings import EngineSettings
from controlplane.surroundings import Surroundings
from store.db import Record
from store.observations import Gap, PluginStatus
from store.records import (
    Alarm,
    CommandOutcome,
    ControlInput,
    Override,
    Tick,
)

log = logging.getLogger("specdeck.engine")

BACK_OFF_MAX_S = 30.0


@dataclass
class Counts:
    """What a runner counts since its start, for ``/metrics``."""

    polls: int = 0
    gaps: int = 0
    poll_s: float = 0.0
    failures: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)


class Runner:
    """Looks after one engine.

    Args:
        settings: the engine's settings.
        client: talks to it.
        around: store, hub, clock and limits.
    """

    def __init__(
        self, settings: EngineSettings, client: EngineClient, around: Surroundings
    ) -> None:
        self.settings = settings
        self.engine_id = settings.id
        self.counts = Counts()
        self.pilot = Pilot(settings, around.holder)
        self.desk = Desk(settings.id, self.pilot, around, self.wake)
        self.known = Known(settings, self.pilot, around)
        self.recorder = Recorder(
            settings.id,
            around.store,
            around.clock,
            publish=self._publish,
            lost=self.pilot.intake.lost,
        )
        self._client = client
        self._around = around
        self._tick: Tick | None = None
        self._seq = 0
        self._restored = False
        self._scraped_mono_ms: int | None = None
        self._woken = asyncio.Event()
        self._ticked = asyncio.Condition()
        self._sender = Sender(client.put, start=self._start, told=self._answered, wake=self.wake)
        self._background: set[asyncio.Task[None]] = set()
        self._alarms: dict[str, Alarm] = {}

    def wake(self) -> None:
        """Poll at once instead of at the next slot."""
        self._woken.set()

    def status(self) -> EngineStatus:
        """The engine with its policy and newest tick."""
        return EngineStatus(
            engine=self.known.record,
            policy=self.pilot.policy,
            tick=self._tick,
            poll_s=self.settings.poll_s,
            now_utc_ms=self._around.clock.utc_ms(),
        )

    def troubles(self) -> list[str]:
        """What keeps this loop from doing its work, in sentences."""
        return [alarm.text for alarm in self._alarms.values()]

    async def confirmed(self, override: Override, timeout_s: float) -> bool:
        """Wait until every observed rank runs what ``override`` asks for.

        Returns:
            False if that did not happen in time, or the override is no longer in force.
        """

        def settled() -> bool:
            in_force = self.pilot.override
            gone = in_force is None or in_force.id != override.id
            return gone or obeyed(self._tick, override)

        try:
            async with asyncio.timeout(timeout_s), self._ticked:
                await self._ticked.wait_for(settled)
        except TimeoutError:
            return False
        return obeyed(self._tick, override)

    async def next_tick(self, after_seq: int) -> Tick:
        """The newest tick once it follows observation ``after_seq``."""
        async with self._ticked:
            await self._ticked.wait_for(
                lambda: self._tick is not None and self._tick.observation.seq > after_seq
            )
            assert self._tick is not None
            return self._tick

    async def run(self) -> None:
        """Look after the engine for ever; an unexpected failure is logged, told and retried."""
        last, row = "", 0
        while True:
            polls = self.counts.polls
            try:
                await self._loop()
            except Exception as error:
                row = row + 1 if self.counts.polls <= polls + 1 else 0
                self.counts.failures += 1
                self._client.read_again()
                what = f"{type(error).__name__}: {error}"
                if what != last:
                    log.exception("the loop of engine %s failed and goes on", self.engine_id)
                    last = what
                self._alarm("loop_failed", f"the loop of engine {self.engine_id} failed: {what}")
                await asyncio.sleep(min(self.settings.poll_s * 2 ** min(row, 10), BACK_OFF_MAX_S))

    async def close(self) -> None:
        """Stop sending and close connections.  The engine goes on as its lease says."""
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        unsettled = self.pilot.left(self._around.clock.utc_ms())
        if unsettled is not None:
            await self.recorder.keep_soon([unsettled])
        await self.known.costs.close()
        await self._client.aclose()

    async def _loop(self) -> None:
        if not self._restored:
            await self._restore()
        clock, period = self._around.clock, max(round(self.settings.poll_s * 1000), 1)
        phase = phase_ms(self.engine_id, period)
        while True:
            self._woken.clear()
            await self._once()
            # An absolute schedule does not drift; slots that a slow engine missed are left out.
            wait_ms = period - (clock.mono_ms() - phase) % period
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._woken.wait()

    async def _restore(self) -> None:
        """Take up where the last process stopped."""
        around, clock = self._around, self._around.clock
        found = await asyncio.to_thread(restore, around.store, self.engine_id, clock.utc_ms())
        facts = self.known.restore(found.record)
        self._seq = found.seq
        self.pilot.intake.resume(found.seq, clock.utc_ms())
        self.pilot.history = found.history
        if found.boot_id is not None:
            self._client.resume_journal(found.boot_id, dict(found.journal))
        records: list[Record] = [self.known.record, *found.repairs]
        if facts is not None:
            records += self.known.adopt(facts, (), clock.utc_ms())
        await self.recorder.keep_soon(records)
        if found.override is not None:
            self.pilot.put_in_force(found.override, clock.utc_ms(), clock.mono_ms(), clock.clock_id)
        self._restored = True

    async def _once(self) -> None:
        clock = self._around.clock
        self._seq += 1
        begun = clock.mono_ms()
        keep_raw = self._scrape_is_due(begun)
        polled = await self._client.poll(self._seq, keep_raw=keep_raw)
        self.counts.polls += 1
        self.counts.poll_s += (clock.mono_ms() - begun) / 1000
        self.counts.gaps += isinstance(polled.observation, Gap)
        records = await self.known.learned(polled, self._seq)
        tick, command, ended = self.pilot.step(polled.observation)
        for decision in tick.decisions:
            self.counts.decisions[decision.outcome] += 1
        records += [*tick.decisions, *polled.scrapes]
        stored = await self._store(tick, records, self.pilot.intake.take())
        if ended is not None:
            # On its own: a person may have ended it meanwhile, and that record stays.
            self.recorder.keep([ended])
        if command is not None:
            self._sender.send(command, awaited=tick.pending is not None)
        if not stored.id:
            self._publish(stored)
        if self._around.webhooks is not None:
            self._around.webhooks.told(stored)
        self._tick = stored
        async with self._ticked:
            self._ticked.notify_all()
        if keep_raw and self._patched():
            self._start(self._keep_metrics(self._seq))
        if tick.decisions:
            # The raw answers around a decision are kept too.
            self._scraped_mono_ms = None

    def _scrape_is_due(self, now_mono_ms: int) -> bool:
        last, every = self._scraped_mono_ms, self._around.scrape_every_s * 1000
        due = last is None or now_mono_ms - last >= every
        if due:
            self._scraped_mono_ms = now_mono_ms
        return due

    def _patched(self) -> bool:
        facts = self.pilot.facts
        return facts is not None and facts.plugin is PluginStatus.PRESENT

    async def _store(
        self, tick: Tick, records: Sequence[Record], inputs: Sequence[ControlInput]
    ) -> Tick:
        """The tick as stored.  When it cannot be, control goes on and the tick says so."""
        told = tick.alarms
        if self._alarms:
            tick = tick.model_copy(update={"alarms": (*told, *self._alarms.values())})
        stored = await self.recorder.record(tick, inputs, records)
        if not self.recorder.trouble:
            self._alarms.clear()
        else:
            if "store_failed" not in self._alarms and not self._around.store.state.trouble:
                log.error("%s", self.recorder.trouble)  # the store itself tells its trouble once
            self._alarm("store_failed", self.recorder.trouble)
        if not stored.id:
            stored = stored.model_copy(update={"alarms": (*told, *self._alarms.values())})
        return stored

    def _publish(self, tick: Tick) -> None:
        hub = self._around.hub
        data = tick.model_dump_json() if hub.clients else ""
        hub.publish(Event(tick.id, self.engine_id, data))

    def _alarm(self, code: str, text: str) -> None:
        before = self._alarms.get(code)
        since = self._around.clock.utc_ms() if before is None else before.since_utc_ms
        self._alarms[code] = Alarm(code=code, text=text, since_utc_ms=since)

    def _answered(self, outcome: CommandOutcome) -> None:
        """The engine answered a command, or did not."""
        self.counts.commands[outcome.kind] += 1
        decision = self.pilot.answered(outcome)
        if decision is not None:
            self.counts.decisions[decision.outcome] += 1
            self.recorder.keep([decision])
            if self._around.webhooks is not None:
                self._around.webhooks.settled(decision)

    async def _keep_metrics(self, seq: int) -> None:
        scrape = await self._client.scrape_metrics(seq)
        if scrape is not None:
            # One of many: left out while the store cannot be written, which the alarm tells.
            self._around.store.write([scrape])

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = f"{type(error).__name__}: {error}"
            log.error("engine %s: %s", self.engine_id, what, exc_info=error)
            self._alarm("send_failed", f"engine {self.engine_id}: {what}")
