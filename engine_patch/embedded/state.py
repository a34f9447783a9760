"""The state answer of one boot: what ``GET /speculation`` says about replicas, tiers and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from engine_patch.chooser import Chooser
from engine_patch.contract import (
    PROTOCOL,
    PROTOCOL_MIN,
    Capability,
    JournalEntry,
    RankState,
    ReplicaState,
    Simulation,
    SpeculationState,
    TierInfo,
    Versions,
)
from engine_patch.contract_words import OffFlavour, OffKind
from engine_patch.costs import StepCost
from engine_patch.embedded.acceptance import mean_length
from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.faults import Faults
from engine_patch.front import Front
from engine_patch.tier import OFF, TierName, TierShape

ENGINE_NAME = "sglang (simulated)"


@dataclass(frozen=True)
class Options:
    """What an embedded engine is started with.

    Args:
        config: each DP replica; ``dp_rank`` is set per replica.
        tp, dp: ranks per replica, replicas.
        cap_origin: where ``max_running_requests`` came from.
    """

    config: EngineConfig
    seed: int = 1
    tp: int = 1
    dp: int = 1
    admin_key: str | None = None
    cap_origin: str = "flag"


@dataclass(frozen=True)
class Moment:
    """When an answer is made.

    Args:
        now_ms: virtual milliseconds since the boot.
        lag, valid: what the boot's lag amounts to.
    """

    now_ms: float
    lag: float
    valid: bool


class StateAnswer:
    """Makes the state answers of one boot."""

    def __init__(
        self,
        options: Options,
        engines: Sequence[Engine],
        faults: Faults,
        boot_id: str,
        started_utc_ms: int,
    ) -> None:
        config = options.config
        self.options = options
        self.engines = engines
        self.faults = faults
        self.boot_id = boot_id
        self.started_utc_ms = started_utc_ms
        self.versions = Versions(
            engine=ENGINE_NAME,
            engine_version=config.table.engine_version,
            plugin_version=version(),
            torch=config.table.torch,
            flashinfer=config.table.flashinfer,
        )
        self.identity = config.table.identity.model_copy(
            update={
                "gpu_count": options.tp * options.dp,
                "tp_size": options.tp,
                "dp_size": options.dp,
                "requested_max_running_requests": config.max_running_requests,
                "max_running_requests": config.max_running_requests,
                "cap_origin": options.cap_origin,
                "kv_capacity": config.kv_slots,
            }
        )
        self.costs = self._step_costs(config.accept_length)
        self._tiers = tuple(self._info(tier) for tier in config.tiers)
        self._idle_looks = 0
        self._frozen: tuple[float, tuple[ReplicaState, ...]] | None = None
        self._kept: dict[int, RankState] = {}

    @property
    def flavours(self) -> tuple[OffFlavour, ...]:
        """What the drafter can do while off.  Whole draft-extend on the plain path costs 4 to 12 %
        more by our measurement and has no column in the table, so it is not offered."""
        if self.options.config.off_kind is OffKind.PLAIN_PATH:
            return (OffFlavour.KEEP, OffFlavour.COLD)
        return (OffFlavour.WARM, OffFlavour.COLD)

    def set_accept_length(self, accept_length: float) -> None:
        """Tokens per step of the cost table follow the acceptance."""
        self.costs = self._step_costs(accept_length)

    def note_refusing_rank(self) -> None:
        """Fix what the refusing rank reports from now on."""
        for engine in self.engines:
            self._ranks(engine.chooser)

    def answer(self, front: Front, since: int, moment: Moment) -> SpeculationState:
        """The whole state.

        Args:
            since: journal entries with a higher number are given.
        """
        config = self.options.config
        claimed = self.faults.protocol
        return SpeculationState(
            protocol=PROTOCOL if claimed is None else claimed,
            protocol_min=PROTOCOL_MIN if claimed is None else claimed,
            boot_id=self.boot_id,
            uptime_s=round(moment.now_ms / 1000, 3),
            versions=self.versions,
            identity=self.identity,
            capabilities=self._capabilities(),
            tiers=self._tiers,
            launch_tier=config.launch_tier,
            mode=front.mode,
            desired_tier=front.tier,
            thresholds=front.thresholds,
            off_flavour=front.off_flavour or self.flavours[0],
            epoch=front.epoch,
            generation=front.generation,
            replicas=self._replicas(moment.now_ms),
            journal=self._journal(since),
            journal_first=max(engine.chooser.journal_first for engine in self.engines),
            costs=self.costs,
            simulation=Simulation(
                table=config.table.name,
                source=config.table.provenance,
                lag=round(moment.lag, 5),
                valid=moment.valid,
            ),
        )

    def _replicas(self, now: float) -> tuple[ReplicaState, ...]:
        if not self.faults.freeze_sample:
            self._frozen = None
        elif self._frozen is not None:
            at, states = self._frozen
            return tuple(state.model_copy(update={"age_ms": now - at}) for state in states)
        if all(engine.current is None for engine in self.engines):
            # The numbers of an idle engine are those of this very moment, hence new each time.
            self._idle_looks += 1
        states = tuple(self._replica(engine, now) for engine in self.engines)
        if self.faults.freeze_sample:
            self._frozen = (now, states)
        return states

    def _replica(self, engine: Engine, now: float) -> ReplicaState:
        chooser, books = engine.chooser, engine.books
        since = now if engine.current is None else engine.current.start_ms
        return ReplicaState(
            dp_rank=engine.config.dp_rank,
            ranks=self._ranks(chooser),
            running=len(engine.running),
            queued=engine.queued,
            prefilling=engine.prefilling,
            kv=engine.kv.slots(),
            accept=None if engine.config.plain else chooser.window.record(),
            decode_tokens=books.decode_tokens,
            decode_steps=books.decode_steps,
            verify_steps=books.verify_steps,
            prefill_tokens=books.prefill_tokens,
            finished=books.finished,
            retractions=books.retractions,
            switches=chooser.switches,
            cold_requests=engine.cold_requests,
            journal_first=chooser.journal_first,
            age_ms=round(max(0.0, now - since), 3),
            sample=books.passes + self._idle_looks,
        )

    def _ranks(self, chooser: Chooser) -> tuple[RankState, ...]:
        stubborn = self.faults.rank_refuses
        if stubborn is None:
            self._kept.clear()
        ranks = []
        for rank in range(self.options.tp):
            state = RankState(
                tp_rank=rank,
                observed=True,
                tier=chooser.tier,
                step=chooser.step,
                applied_epoch=chooser.epoch,
                applied_generation=chooser.generation,
            )
            if rank == stubborn:
                state = self._kept.setdefault(id(chooser), state)
            ranks.append(state)
        return tuple(ranks)

    def _journal(self, since: int) -> tuple[JournalEntry, ...]:
        entries: list[JournalEntry] = []
        for engine in self.engines:
            for entry in engine.chooser.journal_since(since):
                at = engine.switch_times.get(entry.seq)
                utc = None if at is None else int(self.started_utc_ms + at)
                entries.append(entry.model_copy(update={"at_utc_ms": utc}))
        return tuple(entries)

    def _capabilities(self) -> tuple[Capability, ...]:
        follows = self.options.config.reserve_follows
        return (
            Capability(name="auto", available=True),
            Capability(name="topk_change", available=True),
            Capability(
                name="reserve_follows_tier",
                available=follows,
                reason="" if follows else "started with --reserve-stays",
            ),
            Capability(
                name="true_times",
                available=False,
                reason=f"times are simulated from table {self.options.config.table.name}",
            ),
        )

    def _info(self, tier: TierName) -> TierInfo:
        shape = TierShape.parse(tier)
        return TierInfo(
            name=tier,
            num_steps=shape.num_steps,
            topk=shape.topk,
            num_draft_tokens=shape.num_draft_tokens,
            off_kind=self.options.config.off_kind if tier == OFF else None,
            alloc_len=shape.alloc_len(),
            max_batch=self.options.config.max_running_requests,
        )

    def _step_costs(self, accept_length: float) -> tuple[StepCost, ...]:
        config = self.options.config
        costs: list[StepCost] = []
        for tier in config.tiers:
            length = mean_length(accept_length, TierShape.parse(tier), config.accept_mode)
            costs += config.table.costs(tier, config.off_kind, length, config.max_running_requests)
        return tuple(costs)


def version() -> str:
    """The installed version of this package."""
    try:
        return metadata.version("specdeck")
    except metadata.PackageNotFoundError:
        return "unknown"
