"""An unpatched SGLang, seen through ``/v1/loads`` and ``/metrics``.  Pure.

Load and KV numbers come from ``/v1/loads`` where it exists, counters, tiers and accept lengths from
``/metrics``.  Neither tells a boot id, so starts are told apart by the measured start-up times, or
by counters that went back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from controlplane.loads import Loads, ReplicaLoad
from controlplane.metrics import EngineMetrics, ReplicaMetrics
from controlplane.patched import agreed
from controlplane.polled import Stamp
from controlplane.server_info import ServerInfo
from controlplane.windows import AcceptReading, GaugeWindow, advance, combine
from engine_patch.contract import Versions
from engine_patch.tier import OFF, TierName, TierShape
from store.observations import (
    EngineFacts,
    KvNumbers,
    PluginStatus,
    RankTier,
    Sample,
    Source,
)


@dataclass(frozen=True, slots=True)
class UnpatchedSeen:
    """What the last poll of this server said.

    Args:
        marker: the server's own start marker.
        restarts: starts that only its counters showed, under the same marker.
        windows: gauge windows by DP rank.
        counters: (decode tokens, prefill tokens, prefill tokens by ``/v1/loads``) by DP rank.
        scraped: what each replica exported, by DP rank.
        stamps: times of the load snapshots by DP rank, in seconds.
    """

    marker: str | None = None
    restarts: int = 0
    windows: Mapping[int, GaugeWindow] = field(default_factory=dict)
    counters: Mapping[int, tuple[int | None, int | None, int | None]] = field(default_factory=dict)
    scraped: Mapping[int, ReplicaMetrics] = field(default_factory=dict)
    stamps: Mapping[int, float] = field(default_factory=dict)

    @property
    def boot_id(self) -> str:
        """Changes with each start of the server that can be told from the last one."""
        return f"{self.marker or 'unmarked'}.{self.restarts}"


def observe(
    seen: UnpatchedSeen,
    metrics: EngineMetrics | None,
    loads: Loads | None,
    launch: TierShape | None,
    stamp: Stamp,
) -> tuple[UnpatchedSeen, Sample]:
    """Turn the answers of one poll into a sample.

    Args:
        metrics: None where the server has no ``/metrics``.
        loads: None where it has no ``/v1/loads``.
        launch: shape at launch, for the topk that no metric tells; None while it is not known.
    """
    told = {load.dp_rank: load for load in (loads.replicas if loads is not None else ())}
    scraped = {one.dp_rank: one for one in (metrics.replicas if metrics is not None else ())}
    ranks = sorted(told.keys() | scraped.keys())
    counters = {rank: _counters(scraped.get(rank), told.get(rank)) for rank in ranks}
    seen = _after_restart(seen, metrics.start_marker if metrics is not None else None, counters)
    stamps = {rank: load.timestamp for rank, load in told.items()}
    windows: dict[int, GaugeWindow] = {}
    readings: list[AcceptReading] = []
    for rank, one in scraped.items():
        windows[rank], reading = advance(seen.windows.get(rank), one)
        if reading is not None:
            readings.append(reading)
    accept = combine(readings)
    running = [_running(scraped.get(rank), told.get(rank)) for rank in ranks]
    applied = tuple(
        RankTier(dp_rank=rank, tp_rank=0, tier=_tier(one.num_steps, one.num_draft_tokens, launch))
        for rank, one in scraped.items()
        if one.num_draft_tokens
    )
    known_running = [count for count in running if count is not None]
    sample = Sample(
        engine_id=stamp.engine_id,
        seq=stamp.seq,
        at_utc_ms=stamp.at_utc_ms,
        at_mono_ms=stamp.at_mono_ms,
        clock_id=stamp.clock_id,
        latency_ms=stamp.latency_ms,
        source=Source.METRICS,
        boot_id=seen.boot_id,
        fresh=_fresh(seen, dict(zip(ranks, running, strict=True)), scraped, stamps),
        concurrency=_sum(running),
        replica_concurrency=max(known_running, default=None),
        queued=_sum(_told(ranks, told, scraped, lambda t: t.num_waiting_reqs, lambda s: s.queued)),
        decode_tokens=_sum(one.decode_tokens for one in scraped.values()),
        decode_steps=_sum(one.decode_steps for one in scraped.values()),
        prefill_tokens=_sum(one.prefill_tokens for one in scraped.values()),
        retractions=_sum(one.retractions for one in scraped.values()),
        graph_misses=_sum(one.graph_misses for one in scraped.values()),
        accept_length=accept.length if accept is not None else None,
        accept_tier=_tier(accept.num_steps, accept.num_draft_tokens, launch) if accept else None,
        kv=KvNumbers(
            capacity=_sum(
                _told(
                    ranks, told, scraped, lambda t: t.max_total_num_tokens, lambda s: s.kv_capacity
                )
            ),
            committed=_sum(
                _told(ranks, told, scraped, lambda t: t.num_used_tokens, lambda s: s.kv_used)
            ),
            evictable=_sum(one.kv_evictable for one in scraped.values()),
        ),
        applied=applied,
        engine_tier=agreed(applied),
    )
    now_seen = UnpatchedSeen(
        marker=seen.marker,
        restarts=seen.restarts,
        windows={**seen.windows, **windows},
        counters={**seen.counters, **counters},
        scraped={**seen.scraped, **scraped},
        stamps={**seen.stamps, **stamps},
    )
    return now_seen, sample


def facts_of(
    plugin: PluginStatus,
    message: str,
    boot_id: str,
    info: ServerInfo | None,
    loads: Loads | None,
    *,
    protocol: int | None = None,
    simulated: str | None = None,
) -> EngineFacts:
    """What rarely changes about the server.

    Args:
        plugin, message, protocol: why it is watched without commands.
        info: None until ``/server_info`` was answered; identity and launch tier wait for it.
        simulated: table of an engine whose times are simulated.
    """
    version = (info.version if info is not None else None) or (
        loads.version if loads is not None else None
    )
    identity = info.identity if info is not None else None
    if identity is not None and loads is not None:
        count = (loads.num_accelerators or 0) * len(loads.loads)
        identity = identity.model_copy(
            update={"gpu": loads.accelerator, "gpu_count": count or identity.gpu_count}
        )
    return EngineFacts(
        boot_id=boot_id,
        plugin=plugin,
        plugin_message=message,
        protocol=protocol,
        versions=Versions(engine="sglang", engine_version=version, plugin_version="")
        if version is not None
        else None,
        identity=identity,
        launch_tier=info.launch_shape.name
        if info is not None and info.launch_shape is not None
        else None,
        simulated=simulated is not None,
        simulation_table=simulated,
    )


def _counters(
    scraped: ReplicaMetrics | None, told: ReplicaLoad | None
) -> tuple[int | None, int | None, int | None]:
    return (
        scraped.decode_tokens if scraped is not None else None,
        scraped.prefill_tokens if scraped is not None else None,
        told.total_prefill_uncached_tokens if told is not None else None,
    )


def _after_restart(
    seen: UnpatchedSeen,
    marker: str | None,
    counters: Mapping[int, tuple[int | None, int | None, int | None]],
) -> UnpatchedSeen:
    """What is still comparable: everything, or nothing if the server started anew."""
    if marker is not None and seen.marker is not None and marker != seen.marker:
        return UnpatchedSeen(marker=marker)
    back = any(
        now is not None and before is not None and now < before
        for rank, values in counters.items()
        for now, before in zip(values, seen.counters.get(rank, (None,) * 3), strict=True)
    )
    if back:
        return UnpatchedSeen(marker=marker or seen.marker, restarts=seen.restarts + 1)
    if marker is None or marker == seen.marker:
        return seen
    # The marker came to light: the same start, named for the first time.
    return replace(seen, marker=marker)


def _fresh(
    seen: UnpatchedSeen,
    running: Mapping[int, int | None],
    scraped: Mapping[int, ReplicaMetrics],
    stamps: Mapping[int, float],
) -> bool:
    """Whether anything is new: a load snapshot with a new time, a counter or gauge that moved.

    A replica with requests in its batch of which nothing moved makes the whole poll a repetition.
    """
    moved: list[bool] = []
    for rank, count in running.items():
        new = stamps.get(rank) != seen.stamps.get(rank)
        new = new or scraped.get(rank) != seen.scraped.get(rank)
        if not new and count:
            return False
        moved.append(new)
    return any(moved)


def _running(scraped: ReplicaMetrics | None, told: ReplicaLoad | None) -> int | None:
    # The gauge may say "64 running" for half a minute after the last request ended.
    if told is not None and told.num_running_reqs is not None:
        return told.num_running_reqs
    return scraped.running if scraped is not None else None


def _told(
    ranks: Iterable[int],
    told: Mapping[int, ReplicaLoad],
    scraped: Mapping[int, ReplicaMetrics],
    of_load: Callable[[ReplicaLoad], int | None],
    of_gauge: Callable[[ReplicaMetrics], int | None],
) -> list[int | None]:
    """One number per replica: the load snapshot's, else the gauge's."""
    numbers: list[int | None] = []
    for rank in ranks:
        number = of_load(told[rank]) if rank in told else None
        if number is None and rank in scraped:
            number = of_gauge(scraped[rank])
        numbers.append(number)
    return numbers


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum if every replica told its part, else None: a part is not the whole."""
    numbers = list(values)
    known = [number for number in numbers if number is not None]
    return sum(known) if numbers and len(known) == len(numbers) else None


def _tier(steps: int | None, tokens: int | None, launch: TierShape | None) -> TierName | None:
    """The tier of a gauge's shape; None on a plain server and while the topk is not known."""
    if steps is None or not tokens:
        return None
    if steps == 0:
        return OFF if tokens == 1 else None
    if launch is None:
        return None
    try:
        return TierShape(num_steps=steps, topk=launch.topk, num_draft_tokens=tokens).name
    except ValidationError:
        return None
