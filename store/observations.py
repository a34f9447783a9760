"""What a poll of an engine yields: a sample, or a gap.  Pure records, no I/O.

Times: ``at_utc_ms`` is wall time for people, ``at_mono_ms`` the poller's monotonic clock for
durations, ``clock_id`` names the clock's domain: monotonic values of different domains must never
be compared.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from engine_patch.contract import Capability, Identity, JournalEntry, TierInfo, Versions
from engine_patch.contract_words import Mode, OffFlavour, OffKind
from engine_patch.tier import Frozen, Thresholds, TierName


class Source(StrEnum):
    """Where a sample came from."""

    SPECULATION = "speculation"
    """``GET /speculation`` of a patched (or embedded) engine."""
    METRICS = "metrics"
    """``/v1/loads`` and ``/metrics`` of an unpatched SGLang."""


class GapReason(StrEnum):
    """Why a poll brought nothing."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    UNAUTHORISED = "unauthorised"
    BAD_ANSWER = "bad_answer"
    PROTOCOL = "protocol"


class PluginStatus(StrEnum):
    """What the handshake found."""

    PRESENT = "present"
    ABSENT = "absent"
    """SGLang answers, ``/speculation`` does not exist."""
    REFUSED = "refused"
    """The plugin is installed and refused to register; its sentence is in ``plugin_message``."""
    PROTOCOL = "protocol"
    """The plugin speaks a protocol this control plane does not."""


class KvNumbers(Frozen):
    """KV slots over all replicas; None where the engine does not tell."""

    capacity: int | None = None
    committed: int | None = None
    evictable: int | None = None
    reserve: int | None = None

    @property
    def used(self) -> float | None:
        """(committed + reserve) / capacity, 0 to 1; None if the capacity is not known.

        An unpatched engine does not report its reserve; then committed alone is counted.
        """
        if not self.capacity or self.committed is None:
            return None
        return (self.committed + (self.reserve or 0)) / self.capacity


class RankTier(Frozen):
    """What one TP rank of one replica reports; ``tier`` None means "not observed"."""

    dp_rank: int
    tp_rank: int
    tier: TierName | None
    epoch: int = 0
    generation: int = 0


class EngineFacts(Frozen):
    """What rarely changes about an engine: read at the handshake and after each restart."""

    boot_id: str | None
    plugin: PluginStatus
    plugin_message: str = ""
    protocol: int | None = None
    versions: Versions | None = None
    identity: Identity | None = None
    capabilities: tuple[Capability, ...] = ()
    tiers: tuple[TierInfo, ...] = ()
    launch_tier: TierName | None = None
    off_kind: OffKind | None = None
    simulated: bool = False
    simulation_table: str | None = None

    @property
    def writable(self) -> bool:
        """Whether this engine can be commanded at all."""
        return self.plugin is PluginStatus.PRESENT


class Sample(Frozen):
    """One successful poll, normalised.  Counters are raw and monotonic within one ``boot_id``.

    Args:
        seq: order of observations of one engine, rising; wall clock never orders anything.
        fresh: False if the engine repeated an earlier set of numbers (not a new sample).
        concurrency: requests in the running decode batches, summed over replicas; None unknown.
        replica_concurrency: the same for the busiest replica: what thresholds are compared with.
        queued, prefilling: waiting requests, requests being prefilled.
        decode_tokens, decode_steps, verify_steps, retractions, graph_misses, prefill_tokens,
        finished: counters since boot, summed over replicas (``finished`` counts requests that were
            answered); None where the engine does not tell.
        accept_length: tokens per verify step and request in the engine's newest window; None when
            nothing was verified or the window mixed tiers.
        accept_tier: the tier of that window.
        accept_requests: request-steps in the window.
        applied: tier of each rank.
        engine_tier: the one tier all observed ranks run; None if they differ or none is seen.
        lease_remaining_s: seconds until the engine's lease ends; None without a lease.
        unseen_replicas: DP replicas of which nothing can be seen; they are in no number here.
    """

    kind: Literal["sample"] = "sample"
    engine_id: str
    seq: int
    at_utc_ms: int
    at_mono_ms: int
    clock_id: str
    latency_ms: float
    source: Source
    boot_id: str | None
    fresh: bool = True
    concurrency: int | None = None
    replica_concurrency: int | None = None
    queued: int | None = None
    prefilling: int | None = None
    decode_tokens: int | None = None
    decode_steps: int | None = None
    verify_steps: int | None = None
    prefill_tokens: int | None = None
    retractions: int | None = None
    graph_misses: int | None = None
    finished: int | None = None
    accept_length: float | None = None
    accept_tier: TierName | None = None
    accept_requests: int = 0
    kv: KvNumbers = KvNumbers()
    mode: Mode | None = None
    desired_tier: TierName | None = None
    thresholds: Thresholds | None = None
    off_flavour: OffFlavour | None = None
    applied: tuple[RankTier, ...] = ()
    engine_tier: TierName | None = None
    epoch: int = 0
    generation: int = 0
    claim_holder: str | None = None
    claim_remaining_s: float | None = None
    lease_remaining_s: float | None = None
    switches: tuple[JournalEntry, ...] = ()
    journal_hole: bool = False
    simulation_valid: bool | None = None
    simulation_lag: float | None = None
    unseen_replicas: int = 0


class Gap(Frozen):
    """One failed poll."""

    kind: Literal["gap"] = "gap"
    engine_id: str
    seq: int
    at_utc_ms: int
    at_mono_ms: int
    clock_id: str
    reason: GapReason
    message: str


Observation = Annotated[Sample | Gap, Field(discriminator="kind")]
