"""One start ("boot") of an embedded engine: its replicas, its command desk, its state answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, replace
from importlib import metadata

from engine_patch.chooser import Chooser
from engine_patch.contract import (
    PROTOCOL,
    PROTOCOL_MIN,
    Capability,
    JournalEntry,
    OffFlavour,
    OffKind,
    RankState,
    ReplicaAnswer,
    ReplicaState,
    Simulation,
    SpeculationState,
    TierInfo,
    Versions,
)
from engine_patch.costs import StepCost
from engine_patch.embedded.acceptance import mean_length
from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.faults import Faults
from engine_patch.embedded.pacer import Lag, Pacer
from engine_patch.embedded.requests import Request
from engine_patch.front import Front
from engine_patch.routes import Desk
from engine_patch.tier import OFF, TierName, TierShape
from engine_patch.wire import RankCommand

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


class Answer:
    """What a caller waits for: ``left`` when the request is through, ``news`` while streaming."""

    __slots__ = ("left", "news")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.left: asyncio.Future[None] = loop.create_future()
        self.news = asyncio.Event()


class Host:
    """Replicas on wall time, with one command desk.  Implements ``routes.Backend``.

    Args:
        faults: shared between boots.
    """

    def __init__(self, options: Options, faults: Faults) -> None:
        self.options = options
        self.faults = faults
        self.boot_id = uuid.uuid4().hex
        self.started_s = time.monotonic()
        self.started_utc_ms = int(time.time() * 1000)
        config = options.config
        self.engines = [
            Engine(replace(config, dp_rank=rank), options.seed + rank) for rank in range(options.dp)
        ]
        self.lag = Lag()
        self.pacer = Pacer(self.engines, self.now_ms, self._left, self._progressed)
        front = Front.at_launch(
            self.boot_id,
            config.tiers,
            config.launch_tier,
            largest_batch=dict.fromkeys(config.tiers, config.max_running_requests),
            flavours=self.flavours,
            unsupported="this server was started without speculation" if config.plain else "",
        )
        self.desk = Desk(front, self, _mono_ms, admin_key=options.admin_key)
        self._next_replica = 0
        self._idle_looks = 0
        self._frozen: tuple[float, tuple[ReplicaState, ...]] | None = None
        self._kept: dict[int, RankState] = {}
        self._tiers = tuple(self._info(tier) for tier in config.tiers)
        self._costs = self._step_costs(config.accept_length)
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
        self.set_kv_pressure(faults.kv_pressure)

    @property
    def flavours(self) -> tuple[OffFlavour, ...]:
        """What the drafter can do while off.  Whole draft-extend on the plain path costs 4 to 12 %
        more by our measurement and has no column in the table, so it is not offered."""
        if self.options.config.off_kind is OffKind.PLAIN_PATH:
            return (OffFlavour.KEEP, OffFlavour.COLD)
        return (OffFlavour.WARM, OffFlavour.COLD)

    def now_ms(self) -> float:
        """Virtual now: milliseconds of wall time since the start."""
        return (time.monotonic() - self.started_s) * 1000

    def wall_s(self, virtual_ms: float) -> float:
        """Unix seconds of a virtual time."""
        return (self.started_utc_ms + virtual_ms) / 1000

    # ---- requests --------------------------------------------------------------------------------

    def submit(
        self, prompt: int, output: int, *, ignore_eos: bool, stream: bool
    ) -> tuple[Request, Answer]:
        """Hand a request to the next replica in turn.

        Raises:
            ValueError: it could never run.
        """
        engine = self.engines[self._next_replica]
        answer = Answer(asyncio.get_running_loop())
        request = Request(
            prompt,
            output,
            arrival_ms=self.now_ms(),
            ignore_eos=ignore_eos,
            stream=stream,
            tag=answer,
        )
        engine.submit(request)
        self._next_replica = (self._next_replica + 1) % len(self.engines)
        self.pacer.submitted()
        return request, answer

    def answering(self, request: Request) -> None:
        """The answer of a request is about to leave: measure how late."""
        now = self.now_ms()
        finish = request.finish_ms if request.finish_ms is not None else now
        self.lag.answered(now - finish, finish - request.arrival_ms, now)

    def _left(self, request: Request) -> None:
        answer: Answer = request.tag
        answer.news.set()
        if not answer.left.done():
            answer.left.set_result(None)

    def _progressed(self, request: Request) -> None:
        answer: Answer = request.tag
        answer.news.set()

    # ---- routes.Backend --------------------------------------------------------------------------

    async def apply(self, command: RankCommand) -> tuple[ReplicaAnswer, ...]:
        """Carry a command to every replica."""
        self.pacer.catch_up()
        if self.faults.lie:
            return tuple(
                ReplicaAnswer(dp_rank=rank, applied=True, tier=command.tier)
                for rank in range(len(self.engines))
            )
        answers = tuple(engine.command(command) for engine in self.engines)
        self.pacer.submitted()
        return answers

    def snapshot(self, front: Front, since: int) -> SpeculationState:
        """The whole state, as of now."""
        now = self.pacer.catch_up()
        config = self.options.config
        table = config.table
        claimed = self.faults.protocol
        lag, valid = self.lag.judge(now, self.pacer.overdue_ms())
        return SpeculationState(
            protocol=PROTOCOL if claimed is None else claimed,
            protocol_min=PROTOCOL_MIN if claimed is None else claimed,
            boot_id=self.boot_id,
            uptime_s=round(now / 1000, 3),
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
            replicas=self._replicas(now),
            journal=self._journal(since),
            journal_first=max(engine.chooser.journal_first for engine in self.engines),
            costs=self._costs,
            simulation=Simulation(
                table=table.name, source=table.provenance, lag=round(lag, 5), valid=valid
            ),
        )

    # ---- faults ----------------------------------------------------------------------------------

    def set_kv_pressure(self, slots: int) -> None:
        """Hold KV slots on every replica."""
        for engine in self.engines:
            engine.hold(slots)
        self.pacer.submitted()

    def set_accept_length(self, accept_length: float) -> None:
        """Change the acceptance of every replica from the next step on."""
        for engine in self.engines:
            engine.set_accept_length(accept_length)
        self._costs = self._step_costs(accept_length)

    def close(self, why: str) -> None:
        """End this boot: everything in flight fails with ``why``."""
        self.pacer.close()
        self.desk.close()
        for engine in self.engines:
            for request in engine.abort_all(why):
                self._left(request)

    # ---- parts of the answer ---------------------------------------------------------------------

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

    def note_stubborn(self) -> None:
        """Fix what the refusing rank reports from now on."""
        for engine in self.engines:
            self._ranks(engine.chooser)

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


def _mono_ms() -> float:
    return time.monotonic() * 1000


def version() -> str:
    """The installed version of this package."""
    try:
        return metadata.version("specdeck")
    except metadata.PackageNotFoundError:
        return "unknown"
