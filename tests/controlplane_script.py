"""A script of observations for the pure core: what an engine would report, line by line.

No engine and no clock: a :class:`Script` writes samples with the times, loads and tiers it is told,
and takes over the last command only where a test says that the ranks did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controlplane.controller import (
    ControllerConfig,
    ControllerState,
    answered,
    initial,
    step,
    with_override,
)
from engine_patch.contract import Identity, JournalEntry, TierInfo, Versions
from engine_patch.contract_words import Mode, OffKind, SwitchReason
from engine_patch.tier import OFF, Boundary, TierShape
from store.observations import (
    EngineFacts,
    Gap,
    GapReason,
    KvNumbers,
    PluginStatus,
    RankTier,
    Sample,
    Source,
)
from store.policies import HysteresisPolicy, Policy, PolicyConfig, Stance
from store.records import (
    Command,
    CommandOutcome,
    Decision,
    Guards,
    Outcome,
    OutcomeKind,
    Override,
    Tick,
)

ENGINE = "e1"
HOLDER = "cp-a"
UTC = 1_790_000_000_000


def tier_info(name: str, **changes: Any) -> TierInfo:
    """A built tier."""
    shape = TierShape.parse(name)
    kind = OffKind.PLAIN_PATH if name == OFF else None
    base = TierInfo(
        name=name,
        num_steps=shape.num_steps,
        topk=shape.topk,
        num_draft_tokens=shape.num_draft_tokens,
        off_kind=kind,
        alloc_len=shape.alloc_len(),
    )
    return base.model_copy(update=changes)


def facts(
    *tiers: str | TierInfo,
    backend: str | None = "triton",
    off: OffKind = OffKind.PLAIN_PATH,
    **changes: Any,
) -> EngineFacts:
    """A patched engine with these tiers."""
    infos = []
    for tier in tiers or ("s3k1d4", OFF):
        info = tier_info(tier) if isinstance(tier, str) else tier
        infos.append(info.model_copy(update={"off_kind": off}) if info.name == OFF else info)
    identity = Identity(
        model="/models/llama8b",
        draft_model="/models/llama8b-eagle3",
        algorithm="EAGLE3",
        dtype="bfloat16",
        gpu="NVIDIA H200",
        attention_backend=backend,
        max_running_requests=256,
        requested_max_running_requests=256,
        kv_capacity=861_668,
    )
    base = EngineFacts(
        boot_id="boot-1",
        plugin=PluginStatus.PRESENT,
        protocol=1,
        versions=Versions(engine="sglang", engine_version="0.5.23", plugin_version="0.1.0"),
        identity=identity,
        tiers=tuple(infos),
        launch_tier=infos[0].name,
        off_kind=off if any(info.name == OFF for info in infos) else None,
    )
    return base.model_copy(update=changes)


def two_tiers(**changes: Any) -> HysteresisPolicy:
    """s3k1d4 while quiet, off from 24 running requests on, back at 16."""
    values: dict[str, Any] = {
        "tiers": ("s3k1d4", OFF),
        "boundaries": (Boundary(up_at=24, down_at=16),),
        "start_grace_s": 0.0,
    }
    return HysteresisPolicy(**(values | changes))


def config(
    policy: Policy | None = None,
    *,
    stance: Stance = Stance.ACTIVE,
    engine: EngineFacts | None = None,
    read_only: bool = False,
    **changes: Any,
) -> ControllerConfig:
    """A controller configuration."""
    version = PolicyConfig(
        engine_id=ENGINE,
        version=1,
        stance=stance,
        policy=policy or two_tiers(),
        author="test",
        created_utc_ms=UTC,
    ).model_copy(update=changes)
    return ControllerConfig(
        policy=version,
        facts=facts() if engine is None else engine,
        holder=HOLDER,
        read_only=read_only,
    )


def override(
    mode: Mode = Mode.OFF,
    *,
    tier: str | None = None,
    length_s: float = 60.0,
    at_utc_ms: int = UTC,
    guards: Guards = Guards.KEEP,
    number: int = 1,
) -> Override:
    """A person's override."""
    return Override(
        id=number,
        engine_id=ENGINE,
        mode=mode,
        tier=tier,
        author="op1",
        reason="load test",
        guards=guards,
        created_utc_ms=at_utc_ms,
        expires_utc_ms=at_utc_ms + round(length_s * 1000),
        granted_s=length_s,
    )


@dataclass
class Script:
    """Writes observations and steps the controller over them.

    Args:
        obeys: whether the ranks run what the last command asked for at the next sample.
        launch: the tier the engine goes to on its own (start, end of a lease).
    """

    config: ControllerConfig = field(default_factory=config)
    every_ms: int = 500
    obeys: bool = True
    launch: str = "s3k1d4"
    explain: bool = True
    mono_ms: int = 1_000
    utc_ms: int = UTC
    clock_id: str = "clock-1"
    boot_id: str = "boot-1"
    ranks: int = 2
    seq: int = 0
    tier: str = ""
    mode: Mode = Mode.ON
    wanted: str | None = None
    epoch: int = 0
    generation: int = 0
    claim: str | None = None
    lease_ms: int | None = None
    decode_tokens: int = 0
    verify_steps: int = 0
    switches: list[JournalEntry] = field(default_factory=list)
    state: ControllerState = field(init=False)
    ticks: list[Tick] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    observations: list[Sample | Gap] = field(default_factory=list)
    decisions: dict[int, Decision] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = initial(self.config)
        self.tier = self.tier or self.launch

    # -- time -------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        """Let time pass, the engine's lease included."""
        self.mono_ms += ms
        self.utc_ms += ms
        if self.lease_ms is not None:
            self.lease_ms -= ms
            if self.lease_ms <= 0:
                self.lease_ms, self.claim = None, None
                self.move(self.launch, SwitchReason.LEASE_END)
                self.mode = Mode.AUTO

    def move(self, tier: str, reason: SwitchReason) -> None:
        """The engine changes its tier by itself."""
        if tier == self.tier:
            return
        number = len(self.switches) + 1
        self.switches.append(
            JournalEntry(
                seq=number, from_tier=self.tier, to_tier=tier, reason=reason, step=number, batch=1
            )
        )
        self.tier = tier

    def restart(self, boot_id: str = "boot-2") -> None:
        """A new start of the engine: counters, orders and claim begin again."""
        self.boot_id, self.tier, self.mode, self.wanted = boot_id, self.launch, Mode.ON, None
        self.epoch = self.generation = self.decode_tokens = self.verify_steps = 0
        self.claim, self.lease_ms = None, None

    # -- observations -----------------------------------------------------------------------

    def sample(self, load: int = 1, **changes: Any) -> Sample:
        """A sample of the present moment."""
        self.seq += 1
        values: dict[str, Any] = {
            "engine_id": ENGINE,
            "seq": self.seq,
            "at_utc_ms": self.utc_ms,
            "at_mono_ms": self.mono_ms,
            "clock_id": self.clock_id,
            "latency_ms": 2.0,
            "source": Source.SPECULATION,
            "boot_id": self.boot_id,
            "concurrency": load,
            "replica_concurrency": load,
            "queued": 0,
            "decode_tokens": self.decode_tokens,
            "verify_steps": self.verify_steps,
            "retractions": 0,
            "kv": KvNumbers(capacity=100_000, committed=10_000, evictable=0, reserve=load * 8),
            "mode": self.mode,
            "desired_tier": self.wanted,
            "applied": tuple(
                RankTier(dp_rank=0, tp_rank=r, tier=self.tier) for r in range(self.ranks)
            ),
            "engine_tier": self.tier,
            "epoch": self.epoch,
            "generation": self.generation,
            "claim_holder": self.claim,
            "lease_remaining_s": None if self.lease_ms is None else self.lease_ms / 1000,
        }
        return Sample(**(values | changes))

    def see(self, load: int = 1, *, after_ms: int | None = None, **changes: Any) -> Tick:
        """Wait, observe, step; the engine takes the command if it obeys."""
        self.wait(self.every_ms if after_ms is None else after_ms)
        self.decode_tokens += load * 50
        self.verify_steps += 10 if load and self.tier != OFF else 0
        return self.feed(self.sample(load, **changes))

    def gap(self, *, after_ms: int | None = None) -> Tick:
        """Wait, and fail to observe."""
        self.wait(self.every_ms if after_ms is None else after_ms)
        self.seq += 1
        return self.feed(
            Gap(
                engine_id=ENGINE,
                seq=self.seq,
                at_utc_ms=self.utc_ms,
                at_mono_ms=self.mono_ms,
                clock_id=self.clock_id,
                reason=GapReason.TIMEOUT,
                message="no answer within 1.0 s",
            )
        )

    def feed(self, observation: Sample | Gap) -> Tick:
        """Step over an observation and keep everything that came of it."""
        self.observations.append(observation)
        self.state, tick, command = step(self.config, self.state, observation, explain=self.explain)
        self.ticks.append(tick)
        self.decisions.update({decision.seq: decision for decision in tick.decisions})
        if command is not None:
            self.commands.append(command)
            if self.obeys:
                self.take(command)
        return tick

    def take(self, command: Command) -> None:
        """The engine accepts a command and every rank applies it."""
        self.epoch, self.generation = command.epoch, command.generation
        self.mode, self.wanted = command.mode, command.tier
        self.claim, self.lease_ms = HOLDER, round(command.lease_s * 1000)
        if command.mode is Mode.OFF:
            self.tier = OFF
        elif command.mode is Mode.ON:
            self.tier = command.tier or (self.tier if self.tier != OFF else self.launch)

    def answer(
        self, code: str = "", *, kind: OutcomeKind | None = None, **changes: Any
    ) -> Decision | None:
        """The engine's answer to the last command reaches the controller."""
        command = self.commands[-1]
        outcome = CommandOutcome(
            kind=kind or (OutcomeKind.REFUSED if code else OutcomeKind.ACCEPTED),
            epoch=command.epoch,
            generation=command.generation,
            at_utc_ms=self.utc_ms,
            at_mono_ms=self.mono_ms,
            latency_ms=3.0,
            code=code,
        ).model_copy(update=changes)
        self.state, decision = answered(self.config, self.state, outcome)
        if decision is not None:
            self.decisions[decision.seq] = decision
        return decision

    def person(self, asked: Override | None) -> None:
        """A person sets, extends or releases an override now."""
        self.state = with_override(self.state, asked, self.utc_ms, self.mono_ms, self.clock_id)

    def use(self, new: ControllerConfig) -> None:
        """From now on, another configuration."""
        self.config = new

    def stance(self, stance: Stance) -> None:
        """From now on, another stance."""
        policy = self.config.policy.model_copy(update={"stance": stance})
        self.use(self.config.model_copy(update={"policy": policy}))

    # -- reading back -----------------------------------------------------------------------

    @property
    def switched(self) -> list[tuple[str | None, str]]:
        """Confirmed decisions, in order."""
        return [
            (decision.from_tier, decision.to_tier)
            for _, decision in sorted(self.decisions.items())
            if decision.outcome is Outcome.CONFIRMED
        ]

    def outcomes(self) -> list[Outcome]:
        """What became of each decision, in order."""
        return [decision.outcome for _, decision in sorted(self.decisions.items())]


def again(script: Script) -> list[Tick]:
    """The recorded observations once more through a new controller."""
    state, ticks = initial(script.config), []
    for observation in script.observations:
        state, tick, _ = step(script.config, state, observation)
        ticks.append(tick)
    return ticks
