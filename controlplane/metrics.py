"""SGLang's ``/metrics`` as plain values, one set per DP replica.  Pure.

``docs/metrics.md`` lists each trap of these numbers and what is done about it.  Aggregation is by
label: TP, PP and EP ranks repeat a replica's gauge and are taken once, DP replicas add.  What the
scrape does not tell is None.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controlplane.prometheus_text import MetricsError, Series, read_series

GAUGES = (
    "num_running_reqs",
    "num_queue_reqs",
    "max_total_num_tokens",
    "kv_used_tokens",
    "kv_evictable_tokens",
    "num_used_tokens",
    "gen_throughput",
    "decode_sum_seq_lens",
    "spec_accept_length",
    "spec_accept_rate",
    "spec_num_steps",
    "spec_num_draft_tokens",
)
COUNTERS = ("realtime_tokens_total", "cuda_graph_passes_total", "num_retracted_requests_total")
FINISHED = ("generation_tokens_total", "spec_verify_calls_total")
STARTUP = "startup_time_seconds"
FAMILIES = frozenset((*GAUGES, *COUNTERS, *FINISHED, STARTUP))
"""Every family that is read; the rest of a scrape is never parsed."""

_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """What one DP replica exports.

    Gauges are written every ``decode_log_interval`` decode steps and keep their last value while
    nothing runs, so a value says nothing about now; ``windows`` decides what may be used.

    Args:
        running, queued: gauges; requests in the running batch and waiting.
        kv_capacity, kv_used, kv_evictable: KV slots.  Used are those locked by requests; evictable
            ones belong to the prefix cache and are not counted in used.
        decode_tokens, prefill_tokens: counters that move with every step.
        decode_steps, graph_misses: counters of decode passes, and those of them without a captured
            graph; ``graph_misses`` is None on a server that never used a graph.
        retractions: counter of requests retracted for lack of KV slots.
        gen_throughput: tok/s of the last gauge window.  Sticks at idle; used to tell one window
            from the next, never as a speed.
        accept_length: tokens per verify step and request in the last window, bonus included.
        accept_rate: as exported; its formula depends on the version, see ``acceptance``.
        num_steps, num_draft_tokens: shape at the end of that window; both 0 without speculation.
    """

    dp_rank: int
    running: int | None = None
    queued: int | None = None
    kv_capacity: int | None = None
    kv_used: int | None = None
    kv_evictable: int | None = None
    decode_tokens: int | None = None
    prefill_tokens: int | None = None
    decode_steps: int | None = None
    graph_misses: int | None = None
    retractions: int | None = None
    gen_throughput: float | None = None
    sum_seq_lens: float | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    num_steps: int | None = None
    num_draft_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One scrape.

    Args:
        replicas: by rising DP rank; empty if the scrape names none.
        start_marker: changes with each start of the server; None if it does not tell.
        finished_tokens, finished_verify_calls: counters that move only when a request finishes;
            good for totals, never for a speed.
        missing: families of ``FAMILIES`` that the scrape does not carry ("metric not found").
    """

    replicas: tuple[ReplicaMetrics, ...]
    start_marker: str | None = None
    finished_tokens: int | None = None
    finished_verify_calls: int | None = None
    missing: tuple[str, ...] = ()


def read_metrics(text: str) -> EngineMetrics:
    """Read the body of ``GET /metrics``.

    Raises:
        MetricsError: a needed line is malformed, a label or value is impossible, or the text was
            cut off.
    """
    found = read_series(text, FAMILIES)
    by_replica = {name: _by_replica(found.get(name, ())) for name in (*GAUGES, *COUNTERS)}
    ranks = sorted({rank for series in by_replica.values() for rank in series})
    return EngineMetrics(
        replicas=tuple(_replica(rank, by_replica) for rank in ranks),
        start_marker=_start_marker(found.get(STARTUP, ())),
        finished_tokens=_shards(found.get(FINISHED[0])),
        finished_verify_calls=_shards(found.get(FINISHED[1])),
        missing=tuple(sorted(FAMILIES - found.keys())),
    )


def _replica(rank: int, by_replica: Mapping[str, Mapping[int, list[Series]]]) -> ReplicaMetrics:
    def gauge(name: str) -> float | None:
        return _once(by_replica[name].get(rank, ()))

    def count(name: str) -> int | None:
        return _whole(gauge(name), name)

    def mode(name: str, wanted: Callable[[str], bool]) -> int | None:
        shards = by_replica[name].get(rank)
        if shards is None:
            return None
        # The replica exports the family: a mode without a series has not happened yet.
        return _modes(shards, wanted, name)

    used = count("kv_used_tokens")
    passes = mode("cuda_graph_passes_total", lambda m: m.startswith("decode_"))
    with_graph = mode("cuda_graph_passes_total", lambda m: m == "decode_cuda_graph")
    return ReplicaMetrics(
        dp_rank=rank,
        running=count("num_running_reqs"),
        queued=count("num_queue_reqs"),
        kv_capacity=count("max_total_num_tokens"),
        kv_used=count("num_used_tokens") if used is None else used,
        kv_evictable=count("kv_evictable_tokens"),
        decode_tokens=mode("realtime_tokens_total", lambda m: m == "decode"),
        prefill_tokens=mode("realtime_tokens_total", lambda m: m == "prefill_compute"),
        decode_steps=passes,
        graph_misses=passes - with_graph if passes is not None and with_graph else None,
        retractions=count("num_retracted_requests_total"),
        gen_throughput=gauge("gen_throughput"),
        sum_seq_lens=gauge("decode_sum_seq_lens"),
        accept_length=_windowed_accept_length(by_replica["spec_accept_length"].get(rank, ())),
        accept_rate=gauge("spec_accept_rate"),
        num_steps=count("spec_num_steps"),
        num_draft_tokens=count("spec_num_draft_tokens"),
    )


def _by_replica(series: Iterable[Series]) -> dict[int, list[Series]]:
    grouped: dict[int, list[Series]] = {}
    for one in series:
        grouped.setdefault(_rank(one.labels.get("dp_rank", "0"), "dp_rank"), []).append(one)
    return grouped


def _rank(text: str, label: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise MetricsError(f"label {label} holds {text[:40]!r}, which is no rank")
    return int(text)


def _once(series: Iterable[Series]) -> float | None:
    """One replica's value from the series its ranks repeat, None if there is none.

    With priority scheduling the series with an empty priority is the total and the others are its
    breakdown.
    """
    total = [one for one in series if one.labels.get("priority", "") == ""]
    if not total:
        return None
    return min(total, key=_order).value


def _order(series: Series) -> tuple[int, ...]:
    return tuple(_rank(series.labels.get(label, "0"), label) for label in _RANKS)


def _modes(series: Iterable[Series], wanted: Callable[[str], bool], name: str) -> int | None:
    """Sum over a replica's modes; the ranks that repeat a mode are taken once."""
    first: dict[str, Series] = {}
    for one in series:
        mode = one.labels.get("mode", "")
        if wanted(mode) and (mode not in first or _order(one) < _order(first[mode])):
            first[mode] = one
    values = [_whole(one.value, name) for one in first.values()]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _shards(series: tuple[Series, ...] | None) -> int | None:
    """Sum of a counter the HTTP side keeps: streaming or not, priorities and custom labels are all
    shards there, an empty priority among them."""
    if not series:
        return None
    values = [_whole(one.value, "a counter") for one in series]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _windowed_accept_length(series: Iterable[Series]) -> float | None:
    # `/v1/loads?format=prometheus` has a family of the same name that is a lifetime mean; it
    # carries the DP rank and nothing else.
    return _once(one for one in series if "model_name" in one.labels)


def _whole(value: float | None, name: str) -> int | None:
    if value is None:
        return None
    if value < 0:
        raise MetricsError(f"{name} is {value:g}, below zero")
    return round(value)


def _start_marker(series: tuple[Series, ...]) -> str | None:
    """A digest of the measured start-up times, which no two starts share."""
    if not series:
        return None
    told = sorted(f"{one.labels.get('phase', '')}={one.value!r}" for one in series)
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
