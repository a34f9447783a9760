"""What the embedded engine counts, and SGLang's gauges with their habits.

Counters are exact at every moment.  Gauges are what SGLang writes when it logs: after each prefill
pass, and after every 40th decode iteration; in between and while idle they keep their old values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_patch.embedded.kv import KvPool
from engine_patch.tier import OFF, TierShape

if TYPE_CHECKING:
    from engine_patch.embedded.core import EngineConfig, Pass
    from engine_patch.embedded.requests import Request

LOG_INTERVAL = 40
"""SGLang's ``decode_log_interval``, in decode iterations."""


@dataclass(slots=True)
class Gauges:
    """The values of the last log line.

    Args:
        gen_throughput: tokens per virtual second between the last two decode log lines.
        accept_length, accept_rate: over that interval, tiers mixed; 1 and 0 at zero steps; None
            on a plain server and before the first decode log line.
    """

    running: int = 0
    queued: int = 0
    used_tokens: int = 0
    evictable_tokens: int = 0
    gen_throughput: float = 0.0
    accept_length: float | None = None
    accept_rate: float | None = None
    num_steps: int = 0
    num_draft_tokens: int = 0
    at_ms: float = 0.0


@dataclass(slots=True)
class Interval:
    """Sums since the last decode log line."""

    since_ms: float = 0.0
    iterations: int = 0
    tokens: int = 0
    emitted: int = 0
    requests: int = 0
    accepted: int = 0
    proposed: int = 0


@dataclass(slots=True)
class Moments:
    """Sums over decode steps, as SGLang's ``decode_moments`` in ``/v1/loads``."""

    steps: int = 0
    batch: int = 0
    time_us: float = 0.0
    batch_squared: int = 0
    batch_time_us: float = 0.0
    tokens: int = 0


@dataclass(slots=True)
class Books:
    """Counters since boot, plus the gauges.

    Args:
        decode_tokens: output tokens of decode steps.
        generation_tokens, verify_calls, prompt_tokens: SGLang's counters that move only when a
            request finishes.
        lifetime_accepted, lifetime_verified: for SGLang's lifetime mean.
    """

    config: EngineConfig
    decode_tokens: int = 0
    decode_steps: int = 0
    verify_steps: int = 0
    prefill_tokens: int = 0
    prefill_passes: int = 0
    prefill_busy_us: float = 0.0
    finished: int = 0
    aborted: int = 0
    retractions: int = 0
    generation_tokens: int = 0
    prompt_tokens: int = 0
    verify_calls: int = 0
    lifetime_accepted: int = 0
    lifetime_proposed: int = 0
    lifetime_verified: int = 0
    passes: int = 0
    moments: Moments = field(default_factory=Moments)
    gauges: Gauges = field(default_factory=Gauges)
    interval: Interval = field(default_factory=Interval)

    def prefilled(self, done: Pass, running: int, queued: int, kv: KvPool, now_ms: float) -> None:
        """A prefill pass ended; SGLang logs each of them."""
        self.passes += 1
        self.prefill_passes += 1
        self.prefill_tokens += done.tokens
        self.prefill_busy_us += (done.end_ms - done.start_ms) * 1000
        self._load(running, queued, kv, now_ms)

    def verified(self, requests: int, accepted: int, width: int) -> None:
        """A verify step ended: accepted drafts of all its requests."""
        self.verify_steps += 1
        self.lifetime_accepted += accepted
        self.lifetime_proposed += requests * width
        self.lifetime_verified += requests
        self.interval.accepted += accepted
        self.interval.proposed += requests * width

    def decoded(
        self, done: Pass, emitted: int, *, running: int, queued: int, kv: KvPool, now_ms: float
    ) -> None:
        """A decode step ended."""
        batch, time_us = len(done.requests), (done.end_ms - done.start_ms) * 1000
        self.passes += 1
        self.decode_tokens += emitted
        self.decode_steps += 1
        moments, interval = self.moments, self.interval
        moments.steps += 1
        moments.batch += batch
        moments.time_us += time_us
        moments.batch_squared += batch * batch
        moments.batch_time_us += batch * time_us
        moments.tokens += emitted
        interval.iterations += 1
        interval.tokens += emitted
        interval.requests += batch
        if interval.iterations >= LOG_INTERVAL:
            self._log(done, running, queued, kv, now_ms)

    def left(self, request: Request) -> None:
        """A request left."""
        if request.failure:
            self.aborted += 1
            return
        self.finished += 1
        self.generation_tokens += request.emitted
        self.prompt_tokens += request.prompt
        self.verify_calls += request.verifies

    @property
    def lifetime_accept_length(self) -> float | None:
        """Mean accept length since boot; None before the first verify step."""
        if not self.lifetime_verified:
            return None
        return 1 + self.lifetime_accepted / self.lifetime_verified

    @property
    def lifetime_accept_rate(self) -> float | None:
        """Accepted per proposed draft since boot; None before the first proposal."""
        if not self.lifetime_proposed:
            return None
        return self.lifetime_accepted / self.lifetime_proposed

    def reset_lifetime(self) -> None:
        """Start SGLang's lifetime means anew."""
        self.lifetime_accepted = self.lifetime_proposed = self.lifetime_verified = 0

    def _load(self, running: int, queued: int, kv: KvPool, now_ms: float) -> None:
        gauges = self.gauges
        gauges.running, gauges.queued = running, queued
        gauges.used_tokens = kv.committed + kv.held
        gauges.evictable_tokens = kv.evictable
        gauges.at_ms = now_ms

    def _log(self, done: Pass, running: int, queued: int, kv: KvPool, now_ms: float) -> None:
        self._load(running, queued, kv, now_ms)
        gauges, interval = self.gauges, self.interval
        seconds = (now_ms - interval.since_ms) / 1000
        gauges.gen_throughput = interval.tokens / seconds if seconds > 0 else 0.0
        if not self.config.plain:
            shape = TierShape.parse(done.tier)
            gauges.accept_length = 1 + interval.accepted / interval.requests
            gauges.accept_rate = interval.accepted / interval.proposed if interval.proposed else 0.0
            gauges.num_steps = shape.num_steps
            gauges.num_draft_tokens = 1 if done.tier == OFF else shape.num_draft_tokens
        self.interval = Interval(since_ms=now_ms)
