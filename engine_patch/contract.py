"""The engine contract: everything that ``GET /speculation`` carries.

Versioned by ``PROTOCOL``.  Changes are additive; a server of protocol N answers a client of N-1,
and both sides say which they speak.  ``docs/engine-contract.md`` is the public description;
what ``PUT`` carries is in ``contract_commands``.
"""

from __future__ import annotations

from pydantic import Field

from engine_patch.contract_words import Mode, OffFlavour, OffKind, OnLeaseEnd, SwitchReason
from engine_patch.costs import StepCost
from engine_patch.tier import Thresholds, TierName, TierShape, Wire

PROTOCOL = 1
"""The protocol this build speaks."""
PROTOCOL_MIN = 1
"""The oldest protocol this build still serves."""


class Capability(Wire):
    """One thing this engine can or cannot do, with the reason when it cannot."""

    name: str
    available: bool
    reason: str = ""


class Versions(Wire):
    """Who answers: engine name and version, plugin version."""

    engine: str
    engine_version: str
    plugin_version: str
    torch: str | None = None
    flashinfer: str | None = None


class Identity(Wire):
    """What the setup key is made of; None where the engine does not tell.

    Args:
        requested_max_running_requests: the cap asked for at launch, None when unset.
        max_running_requests: the cap in force, per DP replica.
        cap_origin: where the cap came from, for example "flag" or "speculative default 48".
        kv_capacity: KV slots per DP replica.
    """

    model: str
    draft_model: str | None = None
    algorithm: str | None = None
    dtype: str | None = None
    gpu: str | None = None
    gpu_count: int = Field(default=1, ge=0)
    tp_size: int = Field(default=1, ge=1)
    dp_size: int = Field(default=1, ge=1)
    page_size: int = Field(default=1, ge=1)
    attention_backend: str | None = None
    requested_max_running_requests: int | None = None
    max_running_requests: int | None = None
    cap_origin: str | None = None
    kv_capacity: int | None = None


class TierInfo(Wire):
    """A tier that was built at start.

    Args:
        off_kind: only for ``off``.
        alloc_len: KV slots one request may need per step.
        memory_bytes: device memory taken for its backends and graphs, None if not measured.
        build_s: seconds spent building it, None if not measured.
        graph_batch_sizes: batch sizes with a CUDA graph, rising; empty when graphs are disabled.
        max_batch: the largest batch it may serve, None for no limit of its own.
    """

    name: TierName
    num_steps: int
    topk: int
    num_draft_tokens: int
    off_kind: OffKind | None = None
    alloc_len: int
    memory_bytes: int | None = None
    build_s: float | None = None
    graph_batch_sizes: tuple[int, ...] = ()
    max_batch: int | None = None

    @property
    def shape(self) -> TierShape:
        """The tier's three numbers."""
        return TierShape(
            num_steps=self.num_steps, topk=self.topk, num_draft_tokens=self.num_draft_tokens
        )


class Claim(Wire):
    """Who may command the engine, and for how many more seconds (None: until released)."""

    holder: str
    epoch: int
    remaining_s: float | None = None


class Lease(Wire):
    """The dead-man timer of the command in force, in seconds."""

    lease_s: float
    remaining_s: float
    on_lease_end: OnLeaseEnd


class RankState(Wire):
    """What one TP rank runs.  A rank that cannot be seen has ``observed`` False and no tier.

    Args:
        step: decode steps this rank has launched since its start.
        applied_epoch, applied_generation: order of the last command it applied.
        graph_misses: decode steps without a captured graph.
        confirm_steps: decode steps from the last command that changed the tier to the first that
            ran it, that one included; None before such a command, or where an idle engine obeyed.
    """

    tp_rank: int
    observed: bool
    tier: TierName | None = None
    step: int = 0
    applied_epoch: int = 0
    applied_generation: int = 0
    graph_misses: int = 0
    confirm_steps: int | None = None


class KvSlots(Wire):
    """The four KV numbers of one replica, in slots (tokens).

    KV used = (committed + reserve) / capacity; evictable (prefix cache) is drawn apart.
    """

    capacity: int = Field(ge=0)
    committed: int = Field(ge=0)
    evictable: int = Field(ge=0)
    reserve: int = Field(ge=0)

    @property
    def used(self) -> float | None:
        """Used share of the capacity, 0 to 1; None without a capacity."""
        return (self.committed + self.reserve) / self.capacity if self.capacity else None


class AcceptWindow(Wire):
    """Accept length over the engine's newest window of verify steps, one tier only.

    Args:
        length: tokens per verify step and request, bonus included, at least 1.
        requests: request-steps in the window; 0 means that nothing was verified.
        steps: verify steps in the window.
        per_position: share of verified requests that accepted draft position i (rising depth).
    """

    tier: TierName
    length: float | None
    requests: int
    steps: int
    per_position: tuple[float, ...] = ()


class ReplicaState(Wire):
    """One DP replica: its ranks, load, KV numbers and counters (monotonic since boot).

    Args:
        running: requests in the running decode batch.
        queued, prefilling: waiting requests, requests being prefilled.
        decode_tokens: output tokens emitted by decode steps.
        decode_steps, verify_steps: steps launched, and those of them that verified drafts.
        retractions: requests retracted for lack of KV slots.
        cold_requests: running requests with a hole in the drafter's KV.
        rebuilt_requests: those that were prefilled anew by order, since boot.
        age_ms: age of these numbers when the answer was made.
        sample: number that rises with each new set of numbers; equal means not a new sample.
        observed: False where no rank of it can be seen: every number here is then a placeholder,
            0 only because protocol 1 has no word for "missing" in these fields.
        not_counted: names of fields that this engine does not count; they read 0.
        journal_first: smallest number of its journal that is still kept; None: see
            ``SpeculationState.journal_first``.
    """

    dp_rank: int
    ranks: tuple[RankState, ...]
    running: int
    queued: int
    prefilling: int = 0
    kv: KvSlots
    accept: AcceptWindow | None = None
    decode_tokens: int
    decode_steps: int
    verify_steps: int
    prefill_tokens: int = 0
    finished: int = 0
    retractions: int = 0
    graph_misses: int = 0
    switches: int = 0
    cold_requests: int = 0
    rebuilt_requests: int = 0
    age_ms: float = 0.0
    sample: int = 0
    observed: bool = True
    not_counted: tuple[str, ...] = ()
    journal_first: int | None = None


class JournalEntry(Wire):
    """One tier change of one replica, numbered from 1 without holes.

    Args:
        step: decode step at which the new tier was applied.
        batch: running requests at that moment.
        accept_length: the window's accept length that led to it, if it did.
        epoch, generation: order of the command in force.
        reserve_returned: KV slots per running request given back (negative: taken).
    """

    dp_rank: int = 0
    seq: int = Field(ge=1)
    from_tier: TierName
    to_tier: TierName
    reason: SwitchReason
    step: int
    batch: int
    accept_length: float | None = None
    epoch: int = 0
    generation: int = 0
    reserve_returned: int = 0
    at_utc_ms: int | None = None


class Simulation(Wire):
    """Present only on an engine whose times are simulated.

    Args:
        table: name of the measured step-cost table in use.
        lag: share of wall time by which the simulation fell behind, 0 to 1.
        valid: False once the lag exceeded its limit in this run.
    """

    table: str
    source: str
    lag: float
    valid: bool


class SpeculationState(Wire):
    """Answer of ``GET /speculation``.  Assembled from shared memory; never waits for a scheduler.

    Args:
        boot_id: changes with each start of the engine; epoch and generation start again at 0.
        desired_mode, desired_tier: what the command in force asks for.
        journal: entries with a number above the ``since`` query parameter, oldest first.
        journal_first: smallest number that every replica still keeps; a gap to the reader's last is
            a hole.  A replica's own is in ``ReplicaState.journal_first``.
        launch_tier: ``off`` also on a server without speculation; ``identity.algorithm`` tells.
    """

    protocol: int
    protocol_min: int
    boot_id: str
    uptime_s: float
    versions: Versions
    identity: Identity
    capabilities: tuple[Capability, ...]
    tiers: tuple[TierInfo, ...]
    launch_tier: TierName
    mode: Mode
    desired_tier: TierName | None
    thresholds: Thresholds | None
    off_flavour: OffFlavour | None = None
    epoch: int
    generation: int
    claim: Claim | None = None
    lease: Lease | None = None
    replicas: tuple[ReplicaState, ...]
    journal: tuple[JournalEntry, ...] = ()
    journal_first: int = 1
    costs: tuple[StepCost, ...] = ()
    simulation: Simulation | None = None
