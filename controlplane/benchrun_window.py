"""One measured window: the load's reports and the engine's samples between two moments.  Pure.

What the load saw gives the speed; what the engine said gives the reasons why a speed may not be
compared.  Times are milliseconds of the machine's monotonic clock, one clock for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from controlplane.bench_records import PLAIN, BenchPoint, BenchTier
from controlplane.benchrun_steady import too_short
from controlplane.load_records import BOTTLENECK_CPU, BOTTLENECK_LAG_S
from controlplane.load_reports import FlowReport, FlowRequest
from engine_patch.tier import OFF
from store.observations import EngineFacts, Sample

SIMULATION_LAG = 0.02
"""Share by which a simulated engine may fall behind wall time."""
LATE_SHARE = 0.05
"""Share of a request's time by which the load generator may be late on average."""
UNREAD = 0.10
"""Share of the engine's own tokens that the load may not have seen before it counts as behind."""
UNREAD_FROM_S = 1.5
"""Shorter spans of counters are too coarse for that."""
FOREIGN_SHARE, FOREIGN_LEAST = 0.1, 2
"""Requests of others: as a share of ours, and as a number, both above which they count."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the load was asked for: clients of a closed loop, or arrivals per second."""

    clients: int
    rate_s: float | None = None

    @property
    def words(self) -> str:
        """``16 clients`` or ``3 requests/s``."""
        if self.rate_s is not None:
            return f"{self.rate_s:g} requests/s"
        return f"{self.clients} client{'s' * (self.clients != 1)}"


@dataclass(frozen=True, slots=True)
class Window:
    """What was to be measured, and when.

    Args:
        tier: the tier that was asked for, or ``plain``.
        begin_ms, end_ms: the steady part.
        pinned_ms: since when the tier has run: requests sent before lived through another one.
        repeat, block: numbers of the run and of the interleaving block.
        input_len, output_len: tokens per request, None where they differ from one to the next.
        mean_output: output tokens per request on average.
    """

    tier: BenchTier
    load: Load
    begin_ms: float
    end_ms: float
    pinned_ms: float
    repeat: int = 1
    block: int = 0
    input_len: int | None = None
    output_len: int | None = None
    mean_output: float = 1.0
    at_utc_ms: int | None = None
    ramped: bool = True


def measured(
    window: Window, facts: EngineFacts, reports: Sequence[FlowReport], samples: Sequence[Sample]
) -> BenchPoint | None:
    """The run that the window holds; None if no token was seen in it.

    Args:
        reports: at least those of the window, oldest first; the ones around its ends are used too.
        samples: the same of the engine.
    """
    first, last = _around(window, reports)
    inside = [one for one in reports if first.at_ms < one.at_ms <= last.at_ms]
    seconds = (last.at_ms - first.at_ms) / 1000
    if not inside or seconds <= 0 or last.tokens <= first.tokens:
        return None
    tok_s = (last.tokens - first.tokens) / seconds
    seen = [one for one in samples if first.at_ms <= one.at_mono_ms <= last.at_ms]
    before = [one for one in samples if one.at_mono_ms <= first.at_ms][-1:]
    counted = [*before, *seen]
    ended = [request for report in inside for request in report.finished]
    whole = [one for one in ended if not one.error and one.sent_ms >= window.pinned_ms]
    running = _mean(one.concurrency for one in seen)
    in_flight = fmean(report.in_flight for report in inside)
    told = _standing_queue(seen)
    cpu = (last.cpu_s - first.cpu_s) / seconds
    bound = _client_bound(window, inside, cpu, seconds)
    unread = _unread(window, counted, tok_s, cpu, bool(bound))
    identity = facts.identity
    cap = None
    if identity is not None and identity.max_running_requests is not None:
        cap = identity.max_running_requests * identity.dp_size
    load = window.load
    mean_batch = running if running is not None else in_flight
    return BenchPoint(
        tier=window.tier,
        concurrency=load.clients if load.rate_s is None else max(round(mean_batch), 1),
        tok_s=tok_s,
        repeat=window.repeat,
        block=window.block,
        accept_length=_accept_length(window.tier, whole, seen),
        cap=cap,
        off_kind=facts.off_kind if window.tier == OFF else None,
        arrivals="closed" if load.rate_s is None else "poisson",
        rate_s=load.rate_s,
        backend=identity.attention_backend if identity is not None else None,
        engine_version=facts.versions.engine_version if facts.versions is not None else None,
        gpu=identity.gpu if identity is not None else None,
        input_len=window.input_len,
        output_len=window.output_len,
        seconds=seconds,
        requests=sum(not one.error for one in ended),
        failed=sum(bool(one.error) for one in ended),
        running=running,
        queued=told,
        graph_misses=_rise(counted, "graph_misses") if _has_graphs(window.tier, facts) else None,
        retractions=_rise(counted, "retractions"),
        client_bound=bool(bound),
        ttft_s=_median(one.ttft_s for one in ended if not one.error),
        tpot_s=_median(one.tpot_s for one in whole),
        at_utc_ms=window.at_utc_ms,
        not_comparable=(
            *bound,
            *unread,
            *too_short((first, *inside), window.mean_output),
            *_obstacles(window, seen, in_flight, cap),
        ),
    )


def foreign(samples: Iterable[Sample], in_flight: float) -> float:
    """Requests of others at the engine, on average; 0 while there are too few to matter."""
    there = _mean(
        one.concurrency + (one.queued or 0) + (one.prefilling or 0)
        for one in samples
        if one.fresh and one.concurrency is not None
    )
    if there is None:
        return 0.0
    others = there - in_flight
    return others if others > max(FOREIGN_LEAST, FOREIGN_SHARE * in_flight) else 0.0


def _around(window: Window, reports: Sequence[FlowReport]) -> tuple[FlowReport, FlowReport]:
    begin = [one for one in reports if one.at_ms <= window.begin_ms][-1:] or list(reports[:1])
    end = [one for one in reports if one.at_ms <= window.end_ms][-1:] or list(reports[:1])
    if not begin:
        empty = FlowReport(at_ms=0, tokens=0, in_flight=0, decoding=0, warm=0)
        return empty, empty
    return begin[0], end[0]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _standing_queue(seen: Sequence[Sample]) -> float | None:
    """Requests that waited all through the window; one that has just come waits a step in any."""
    known = [one.queued for one in seen if one.fresh and one.queued is not None]
    return float(min(known)) if known else None


def _rise(counted: Sequence[Sample], counter: str) -> int | None:
    known = [value for one in counted if (value := getattr(one, counter)) is not None]
    same = len({one.boot_id for one in counted}) == 1
    return max(known[-1] - known[0], 0) if len(known) >= 2 and same else None


def _has_graphs(tier: str, facts: EngineFacts) -> bool:
    """Whether this tier has CUDA graphs at all: without any, none can be missed."""
    if not facts.tiers:
        return True
    return any(one.name == tier and one.graph_batch_sizes for one in facts.tiers)


def _accept_length(tier: str, whole: Sequence[FlowRequest], seen: Sequence[Sample]) -> float | None:
    """From requests that ran in this tier alone, else from the engine's own window."""
    if tier in (OFF, PLAIN):
        return None
    verified = [(one.accept_length, one.verify_steps) for one in whole if one.accept_length]
    steps = sum(count or 0 for _, count in verified)
    if steps:
        return sum((length or 0) * (count or 0) for length, count in verified) / steps
    told = [
        (one.accept_length, one.accept_requests or 1)
        for one in seen
        if one.accept_length is not None and one.accept_tier in (tier, None)
    ]
    weight = sum(count for _, count in told)
    return sum(length * count for length, count in told) / weight if weight else None


def _client_bound(
    window: Window, inside: Sequence[FlowReport], cpu: float, seconds: float
) -> tuple[str, ...]:
    """Why the load generator may have been the bottleneck; empty if it was not."""
    lags = sorted(lag for report in inside for lag in report.lags_ms)
    found = []
    if cpu > BOTTLENECK_CPU:
        found.append(f"client-bound: the load generator used {100 * cpu:.0f} % of a core")
    if not lags:
        return tuple(found)
    late_ms = lags[min(int(0.99 * len(lags)), len(lags) - 1)]
    if window.load.rate_s is not None:
        if late_ms > BOTTLENECK_LAG_S * 1000:
            found.append(f"client-bound: arrivals were {late_ms:.0f} ms late (p99)")
        return tuple(found)
    # In a closed loop a late client leaves its place in the batch empty: what counts is its mean
    # lateness against how long a request takes.
    times = [one.done_ms - one.sent_ms for report in inside for one in report.finished]
    typical = median(times) if times else 1000 * seconds
    if fmean(lags) > LATE_SHARE * typical:
        found.append(
            f"client-bound: the load generator was {fmean(lags):.1f} ms late on average, "
            f"{100 * fmean(lags) / typical:.0f} % of a request's time"
        )
    return tuple(found)


def _unread(
    window: Window, counted: Sequence[Sample], tok_s: float, cpu: float, bound: bool
) -> tuple[str, ...]:
    """Whether the engine made tokens that the load had not read yet.

    Where the load generator was not the bottleneck they wait before it, perhaps in the server's
    HTTP process, which sends a part for each step of each request.  With ``off`` every token is a
    part: SGLang 0.5.17 on an H200 made 11,795 a second for 128 clients, of which 7,964 arrived
    while the generator used half a core at most.  In parts of four tokens they arrive.
    """
    fresh = [one for one in counted if one.fresh and one.decode_tokens is not None]
    if len(fresh) < 2 or fresh[0].boot_id != fresh[-1].boot_id:
        return ()
    seconds = (fresh[-1].at_mono_ms - fresh[0].at_mono_ms) / 1000
    if seconds < UNREAD_FROM_S or foreign(fresh, window.load.clients):
        return ()
    made = ((fresh[-1].decode_tokens or 0) - (fresh[0].decode_tokens or 0)) / seconds
    if tok_s >= (1 - UNREAD) * made:
        return ()
    if bound:
        return (f"the engine made {made:.0f} tok/s, the load generator read {tok_s:.0f} tok/s",)
    return (
        f"the engine made {made:.0f} tok/s, {tok_s:.0f} tok/s arrived, and the load generator used "
        f"only {100 * cpu:.0f} % of a core: the server's HTTP process may be behind; with "
        "a longer --stream-interval (here, or at the server for everybody) it sends fewer parts",
    )


def _obstacles(
    window: Window, seen: Sequence[Sample], in_flight: float, cap: int | None
) -> tuple[str, ...]:
    load, found = window.load, []
    if not window.ramped:
        held = "" if cap is None or cap >= load.clients else f" (max_running_requests {cap})"
        found.append(f"not all of {load.words} had a first token in time{held}")
    if window.tier != PLAIN:
        tiers = {one.engine_tier for one in seen if one.fresh}
        others = sorted(tier or "mixed tiers" for tier in tiers - {window.tier})
        if others and seen and seen[0].engine_id and not _unpatched(seen):
            found.append(f"the engine ran {', '.join(others)} for a part of the window")
    if len({one.boot_id for one in seen}) > 1:
        found.append("the engine restarted in the window")
    others_there = foreign(seen, in_flight)
    if others_there:
        found.append(f"{others_there:.0f} requests of others ran beside it")
    lags = [one.simulation_lag for one in seen if one.simulation_lag is not None]
    if lags and max(lags) > SIMULATION_LAG:
        found.append(f"the simulated engine fell {100 * max(lags):.1f} % behind wall time")
    return tuple(found)


def _unpatched(seen: Sequence[Sample]) -> bool:
    """Whether the tier is the launch's and no rank tells it."""
    return all(one.engine_tier is None for one in seen)
