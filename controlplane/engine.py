"""The control plane's side of one engine: watch it, and carry commands to it.

A patched engine is watched by ``GET /speculation`` alone.  A server without a usable plugin is
watched by ``/v1/loads`` and ``/metrics``.  One connection pool per engine, at most one outstanding
request per endpoint, every answer bounded in time and size.  Nothing waits for ``/server_info``: it
goes through the scheduler and is asked in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from controlplane import patched, unpatched
from controlplane.background_info import BackgroundInfo
from controlplane.clock import Clock, SystemClock
from controlplane.commanding import command_body, invalid, read_outcome, unanswered
from controlplane.handshake import Shake, read_answer, unauthorised
from controlplane.loads import Loads, read_loads
from controlplane.metrics import EngineMetrics, read_metrics
from controlplane.polled import EngineError, Polled, Stamp
from controlplane.prometheus_text import MetricsError
from controlplane.transport import Answer, EngineHttp
from engine_patch.costs import StepCost
from store.observations import EngineFacts, Gap, GapReason, PluginStatus, Sample
from store.records import Command, CommandOutcome, RawScrape

SPECULATION = "/speculation"
LOADS = "/v1/loads"
METRICS = "/metrics"

SHAKE_AGAIN_MS = 30_000
"""How often a server without a usable plugin is asked again whether it has one by now."""
NO_METRICS = "SGLang runs without --enable-metrics: no tok/s, no accept length, no tier"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Watched:
    """What the endpoints of an unpatched server brought.

    Args:
        simulated: table of an engine whose times are simulated.
    """

    metrics: EngineMetrics | None
    loads: Loads | None
    simulated: str | None


class EngineClient:
    """One engine.

    Args:
        engine_id: its id in records.
        url: base URL of its HTTP server.
        admin_key: SGLang's admin key, sent with commands only.
        api_key: SGLang's API key, sent with reads.
        timeout_s: seconds a poll or a command may take.
        clock: where times come from.
        clock_id: names the monotonic clock in records.
        holder: name under which commands claim the engine.

    Raises:
        ValueError: the URL is none, or a key cannot be sent.
    """

    def __init__(
        self,
        engine_id: str,
        url: str,
        *,
        admin_key: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 2.0,
        clock: Clock | None = None,
        clock_id: str = "",
        holder: str = "specdeck",
    ) -> None:
        self.engine_id = engine_id
        self._holder = holder
        self._timeout_s = timeout_s
        self._clock: Clock = clock or SystemClock()
        self._clock_id = clock_id or getattr(self._clock, "clock_id", "")
        self._http = EngineHttp(url, api_key=api_key, admin_key=admin_key, timeout_s=timeout_s)
        self._polling = asyncio.Lock()
        self._facts: EngineFacts | None = None
        self._costs: tuple[StepCost, ...] = ()
        self._plugin: Shake | None = None
        self._shaken_ms = 0
        self._seen = patched.Seen()
        self._seen_before = self._seen
        self._watched = unpatched.UnpatchedSeen()
        self._info = BackgroundInfo(self._http, self._clock)

    @property
    def facts(self) -> EngineFacts | None:
        """What is known of the engine; None until it answered for the first time."""
        return self._facts

    def resume_journal(self, boot_id: str, newest: dict[int, int]) -> None:
        """Say which journal entries are stored already, so that a hole across a restart of the
        control plane is seen.

        Args:
            boot_id: start of the engine they belong to.
            newest: highest stored number by DP rank.
        """
        self._seen = patched.Seen(boot_id=boot_id, journal=dict(newest))
        self._seen_before = self._seen

    def read_again(self) -> None:
        """What the last poll brought was not taken in: the next one brings its journal again."""
        self._seen = self._seen_before

    async def handshake(self) -> EngineFacts:
        """Find out who the engine is.  A poll does the same by itself; nothing is lost to it.

        Raises:
            EngineError: it cannot be reached, refuses the key, or answers nonsense.
        """
        async with self._polling:
            raw: list[tuple[str, Answer]] = []
            shake = await self._shake(raw)
            if shake.state is not None:
                self._facts = patched.facts_of(shake.state)
                return self._facts
            watched = await self._watch(shake, self._timeout_s, raw)
            seen, _ = unpatched.observe(
                self._watched, watched.metrics, watched.loads, None, self._stamp(0, 0.0)
            )
            self._facts = self._unpatched_facts(shake, watched, seen.boot_id)
            return self._facts

    async def poll(self, seq: int, *, keep_raw: bool = False) -> Polled:
        """Observe the engine once.  Trouble makes a gap, never an exception.

        Args:
            seq: number of this observation.
            keep_raw: hand the raw answers back as well, those that could not be read among them.
        """
        async with self._polling:
            known, self._seen_before = self._facts, self._seen
            begun = self._clock.mono_ms()
            raw: list[tuple[str, Answer]] = []
            observation: Sample | Gap
            try:
                observation = await self._observe(seq, begun, raw)
            except EngineError as error:
                if error.reason is not GapReason.TIMEOUT:
                    # Whoever answers next may be somebody else.
                    self._plugin = None
                observation = self._stamp(seq, begun).gap(error.reason, error.message)
            changed = self._facts if self._facts != known else None
            kept = [one for one in raw if keep_raw and one[1].status == 200]
            scrapes = tuple(self._scrape(seq, path, _text(answer)) for path, answer in kept)
            return Polled(observation, changed, self._costs, scrapes)

    async def scrape_metrics(self, seq: int) -> RawScrape | None:
        """The raw text of ``/metrics``, for the store; None if there is none to have."""
        try:
            answer = await self._http.get(METRICS, self._timeout_s)
        except EngineError:
            return None
        if answer.status != 200:
            return None
        return self._scrape(seq, METRICS, _text(answer))

    async def put(self, command: Command) -> CommandOutcome:
        """Carry a command to the engine and say how it was answered; never raises."""
        begun = self._clock.mono_ms()
        try:
            body = command_body(command, self._holder)
        except ValueError as error:
            return invalid(command, self._stamp(0, begun), error)
        try:
            answer = await self._http.put(SPECULATION, body, self._timeout_s)
        except EngineError as error:
            return unanswered(command, self._stamp(0, begun), error)
        return read_outcome(command, self._stamp(0, begun), answer.status, answer.body)

    async def aclose(self) -> None:
        """Drop what is outstanding and close the connections."""
        await self._info.aclose()
        await self._http.aclose()

    # -- one observation ---------------------------------------------------------------------

    async def _observe(self, seq: int, begun: int, raw: list[tuple[str, Answer]]) -> Sample:
        until = asyncio.get_running_loop().time() + self._timeout_s
        shake = self._plugin
        if (
            shake is None
            or shake.plugin is PluginStatus.PRESENT
            or self._clock.mono_ms() - self._shaken_ms >= SHAKE_AGAIN_MS
        ):
            shake = await self._shake(raw)
            self._plugin = Shake(shake.plugin, None, shake.message, shake.protocol)
            self._shaken_ms = self._clock.mono_ms()
            if shake.state is not None:
                stamp = self._stamp(seq, begun)
                self._seen, sample = patched.observe(self._seen, shake.state, stamp)
                self._facts = patched.facts_of(shake.state)
                self._costs = shake.state.costs
                return sample
        left = max(0.05, until - asyncio.get_running_loop().time())
        watched = await self._watch(shake, left, raw)
        stamp = self._stamp(seq, begun)
        boot_id = self._watched.boot_id
        self._watched, sample = unpatched.observe(
            self._watched,
            watched.metrics,
            watched.loads,
            self._info.told.launch_shape if self._info.told is not None else None,
            stamp,
        )
        if self._facts is not None and self._watched.boot_id != boot_id:
            # A new start may have brought the plugin along.
            self._shaken_ms -= SHAKE_AGAIN_MS
        self._costs = ()
        self._facts = self._unpatched_facts(shake, watched, self._watched.boot_id)
        return sample

    async def _shake(self, raw: list[tuple[str, Answer]]) -> Shake:
        answer = await self._http.get(SPECULATION, self._timeout_s, since=self._seen.since)
        raw.append((SPECULATION, answer))
        return read_answer(answer.status, answer.body)

    async def _watch(
        self, shake: Shake, timeout_s: float, raw: list[tuple[str, Answer]]
    ) -> _Watched:
        """Ask the endpoints every SGLang has; each may be missing, not both."""
        loads, metrics = await asyncio.gather(
            self._http.get(LOADS, timeout_s), self._http.get(METRICS, timeout_s)
        )
        if loads.status == 404 and metrics.status == 404:
            if shake.plugin is PluginStatus.PROTOCOL:
                raise EngineError(GapReason.PROTOCOL, shake.message)
            raise EngineError(
                GapReason.BAD_ANSWER,
                f"no SGLang at {self._http.where}: {SPECULATION}, {LOADS} and {METRICS} are all "
                "answered with 404; check the engine's url",
            )
        raw += [(LOADS, loads), (METRICS, metrics)]
        return _Watched(
            _parsed(METRICS, metrics, read_metrics),
            _parsed(LOADS, loads, read_loads),
            loads.simulated,
        )

    # -- facts -------------------------------------------------------------------------------

    def _unpatched_facts(self, shake: Shake, watched: _Watched, boot_id: str) -> EngineFacts:
        return unpatched.facts_of(
            shake.plugin,
            "; ".join(
                text for text in (shake.message, NO_METRICS if not watched.metrics else "") if text
            ),
            boot_id,
            self._info.look(boot_id),
            watched.loads,
            protocol=shake.protocol,
            simulated=watched.simulated,
        )

    # -- records -----------------------------------------------------------------------------

    def _stamp(self, seq: int, begun: float) -> Stamp:
        now = self._clock.mono_ms()
        return Stamp(
            engine_id=self.engine_id,
            seq=seq,
            at_utc_ms=self._clock.utc_ms(),
            at_mono_ms=now,
            clock_id=self._clock_id,
            latency_ms=float(now - begun),
        )

    def _scrape(self, seq: int, path: str, text: str) -> RawScrape:
        return RawScrape(
            engine_id=self.engine_id,
            seq=seq,
            at_utc_ms=self._clock.utc_ms(),
            path=path,
            text=text,
        )


def _text(answer: Answer) -> str:
    return answer.body.decode("utf-8", "replace")


def _parsed(path: str, answer: Answer, parse: Callable[[str], T]) -> T | None:
    """What an endpoint told; None if the server does not have it."""
    if answer.status == 404:
        return None
    if answer.status in (401, 403):
        raise unauthorised(answer.status)
    if answer.status != 200:
        raise EngineError(GapReason.BAD_ANSWER, f"GET {path} was answered with {answer.status}")
    try:
        return parse(_text(answer))
    except MetricsError as error:
        raise EngineError(GapReason.BAD_ANSWER, str(error)) from error
