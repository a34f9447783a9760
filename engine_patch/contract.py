"""The engine contract: everything that ``GET`` and ``PUT /speculation`` carry.

Versioned by ``PROTOCOL``.  Changes are additive; a server of protocol N answers a client of N-1,
and both sides say which they speak.  ``docs/engine-contract.md`` is the public description.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from engine_patch.costs import StepCost
from engine_patch.tier import OFF, Frozen, Thresholds, TierName, TierShape, Wire

PROTOCOL = 1
"""The protocol this build speaks."""
PROTOCOL_MIN = 1
"""The oldest protocol this build still serves."""


class Mode(StrEnum):
    """What steers the engine: its own thresholds, a named tier, or no speculation."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class OffKind(StrEnum):
    """How tier ``off`` runs: as ordinary decode, or upstream's verify of a single token."""

    PLAIN_PATH = "plain_path"
    ONE_TOKEN_VERIFY = "one_token_verify"


class OffFlavour(StrEnum):
    """What the drafter does while off: write its K and V, run a whole draft-extend, or nothing."""

    KEEP = "keep"
    WARM = "warm"
    COLD = "cold"


class OnLeaseEnd(StrEnum):
    """Where the engine goes when a command's lease ends: ``auto`` with the last accepted
    thresholds, the launch tier, or nowhere."""

    AUTO = "auto"
    LAUNCH = "launch"
    HOLD = "hold"


class SwitchReason(StrEnum):
    """Why the engine changed its tier."""

    COMMAND = "command"
    BATCH_UP = "batch_up"
    BATCH_DOWN = "batch_down"
    ACCEPT_FLOOR = "accept_floor"
    LEASE_END = "lease_end"
    KV_SHORT = "kv_short"
    LAUNCH = "launch"


class RefusalCode(StrEnum):
    """Why a command was refused.  Nothing moves on a refusal."""

    STALE_ORDER = "stale_order"
    OTHER_BODY = "other_body"
    FOREIGN_CLAIM = "foreign_claim"
    INVALID = "invalid"
    UNKNOWN_TIER = "unknown_tier"
    NO_THRESHOLDS = "no_thresholds"
    UNSUPPORTED = "unsupported"
    KV_SHORT = "kv_short"
    FORBIDDEN = "forbidden"
    PROTOCOL = "protocol"
    TIMEOUT = "timeout"
    DISAGREE = "disagree"


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


class SpeculationCommand(Frozen):
    """Body of ``PUT /speculation``.

    The tier may be given by name or by its three numbers.  ``off`` is asked for with mode ``off``;
    mode ``on`` with tier ``off`` is refused, mode ``on`` without a tier means the last speculating
    one.  Order is (epoch, generation): the same pair with the same body is answered again without
    effect, with another body refused.

    Args:
        lease_s: seconds until ``on_lease_end`` happens unless the command is repeated with a higher
            generation; None for no lease.
        takeover: take the claim from another holder; raises the epoch by one.
    """

    protocol: int = PROTOCOL
    mode: Mode
    tier: TierName | None = None
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None
    thresholds: Thresholds | None = None
    off_flavour: OffFlavour | None = None
    lease_s: float | None = Field(default=None, gt=0, le=7 * 86400)
    on_lease_end: OnLeaseEnd = OnLeaseEnd.AUTO
    holder: str = Field(min_length=1, max_length=200)
    epoch: int = Field(ge=0)
    generation: int = Field(ge=0)
    takeover: bool = False

    @model_validator(mode="after")
    def _one_tier(self) -> Self:
        numbers = (self.num_steps, self.topk, self.num_draft_tokens)
        given = [n for n in numbers if n is not None]
        if given and len(given) != 3:
            raise ValueError("give num_steps, topk and num_draft_tokens together, or a tier name")
        if given and self.tier is not None and self.shape_name() != self.tier:
            raise ValueError(f"tier {self.tier} and the numbers {numbers} differ")
        tier = self.shape_name()
        if self.mode is Mode.ON and tier == OFF:
            raise ValueError("mode 'on' with tier 'off' contradicts itself: use mode 'off'")
        if self.mode is Mode.OFF and tier not in (None, OFF):
            raise ValueError(f"mode 'off' with tier {tier} contradicts itself: use mode 'on'")
        if self.mode is Mode.AUTO and tier is not None:
            raise ValueError("mode 'auto' takes thresholds, not a tier")
        return self

    def shape_name(self) -> str | None:
        """The tier asked for, by name or by numbers; None if neither was given."""
        if self.num_steps is None or self.topk is None or self.num_draft_tokens is None:
            return self.tier
        return TierShape(
            num_steps=self.num_steps, topk=self.topk, num_draft_tokens=self.num_draft_tokens
        ).name


class ReplicaAnswer(Wire):
    """What one DP replica did with a command: every replica answers, or the command timed out.

    Args:
        needed_slots, free_slots: KV slots a move up needs beyond those held, and those that are
            free or evictable; only where it was refused for lack of them.
    """

    dp_rank: int
    applied: bool
    tier: TierName | None = None
    message: str = ""
    needed_slots: int | None = None
    free_slots: int | None = None


class CommandAnswer(Wire):
    """Answer of ``PUT /speculation`` with status 200.

    ``applied`` means that the replicas took the command into their state machine; that every rank
    runs the tier is seen in ``GET /speculation``.
    """

    protocol: int
    boot_id: str
    epoch: int
    generation: int
    duplicate: bool = False
    mode: Mode
    tier: TierName | None
    replicas: tuple[ReplicaAnswer, ...]
    claim: Claim | None = None
    lease: Lease | None = None


class ReplicaRebuilt(Wire):
    """How many requests of one DP replica were rebuilt, or why none was."""

    dp_rank: int
    rebuilt: int = 0
    message: str = ""


class RebuildAnswer(Wire):
    """Answer of ``POST /speculation/rebuild``: requests with a hole in the drafter's KV are
    retracted and prefilled anew."""

    protocol: int
    boot_id: str
    replicas: tuple[ReplicaRebuilt, ...]


class Refusal(Wire):
    """Body of a refused request (403, 409, 422 or 503): what was wrong and what is allowed."""

    protocol: int = PROTOCOL
    code: RefusalCode
    message: str
    allowed: tuple[str, ...] = ()
    claim: Claim | None = None
    epoch: int | None = None
    generation: int | None = None
    needed_slots: int | None = None
    free_slots: int | None = None
