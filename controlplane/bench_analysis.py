"""The analysis of a benchmark: speed-ups with their uncertainty, crossover, floor.  Pure.

``analyse`` needs nothing but runs, wherever they come from (a live benchmark, a CSV, another tool).
See ``bench_noise`` for intervals and ties, ``bench_floor`` for the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controlplane.bench_arrivals import arrivals_verdict, at_rates, spoiled
from controlplane.bench_cells import (
    Cell,
    Series,
    base_of,
    beyond_caps,
    series_of,
    unequal_caps,
)
from controlplane.bench_crossover import Crossover, Sign, crossover
from controlplane.bench_findings import (
    Analysis,
    Base,
    BelowFloor,
    Bounds,
    NotComparable,
    Point,
    SeriesFindings,
)
from controlplane.bench_floor import ADVICE, DraftShare, break_even, draft_share, floor
from controlplane.bench_noise import Interval, intervals, repeats, tolerance
from controlplane.bench_records import PLAIN, POISSON, BenchFile
from controlplane.bench_verdict import NO_PLAIN, overall, verdict
from engine_patch.tier import OFF

ONE_REPEAT = "not resolved: one repeat"
INCLUDES_ONE = "not resolved: the interval includes 1"


def analyse(file: BenchFile, source: str = "", own_tolerance: float | None = None) -> Analysis:
    """Analyse a file.

    Args:
        source: where it comes from, for people.
        own_tolerance: tolerance for points without an interval, instead of the documented noise.
    """
    every = series_of(run for run in file.points if run.arrivals != POISSON)
    arrivals = at_rates(file.points)
    shares: dict[str, DraftShare] = {}
    found: list[SeriesFindings] = []
    # Speculating tiers first: ``off`` borrows their share of drafting.
    for series in sorted(every, key=lambda one: one.tier == OFF):
        base = base_of(series, every)
        if series.tier == PLAIN or (series.tier == OFF and base is None):
            continue
        findings, share = _one(series, base, own_tolerance, shares)
        if share is not None and series.tier != OFF:
            known = shares.get(series.setup.name)
            if known is None or known.value < share.value:
                shares[series.setup.name] = share
        found.append(findings)
    best = _best(found)
    return Analysis(
        source=source,
        setup_key=file.setup_key,
        simulated=file.simulated,
        complete=file.complete,
        verdict=overall(found, best) if every or not arrivals else arrivals_verdict(arrivals),
        crossover=best,
        points=tuple(point for one in found for point in one.points),
        below_floor=tuple(below for one in found for below in one.below_floor),
        not_comparable=(
            *(gone for one in found for gone in one.not_comparable),
            *_bases_left_out(every, found),
            *spoiled(file.points),
        ),
        series=tuple(found),
        arrivals=arrivals,
        notes=(*file.notes, *file.client),
    )


def _one(
    series: Series,
    base: Series | None,
    own_tolerance: float | None,
    shares: Mapping[str, DraftShare],
) -> tuple[SeriesFindings, DraftShare | None]:
    gone = [
        NotComparable(
            series=series.name,
            tier=series.tier,
            concurrency=left.concurrency,
            repeats=left.repeats,
            reasons=left.reasons,
        )
        for left in series.left_out
    ]
    share: DraftShare | None = None
    points: tuple[Point, ...] = ()
    limit: str | None = None
    if base is not None:
        usable: dict[int, tuple[Cell, Cell]] = {}
        for at, cell in series.cells.items():
            barred = _barred(series, base, at)
            if barred is None:
                usable[at] = (cell, base.cells[at])
            else:
                gone.append(
                    NotComparable(
                        series=series.name, tier=series.tier, concurrency=at, reasons=(barred,)
                    )
                )
            if barred is not None and unequal_caps(series, base) and beyond_caps(series, base, at):
                limit = unequal_caps(series, base)
        share = _share(series, usable, shares)
        points = _points(series, usable, share, own_tolerance)
    said = None if base is None else _base(base)
    crossed = crossover({point.concurrency: point.sign for point in points}, limit)
    findings = SeriesFindings(
        name=series.name,
        tier=series.tier,
        label=series.label,
        off_kind=series.off_kind,
        backend=series.setup.backend,
        engine_version=series.setup.engine_version,
        gpu=series.setup.gpu,
        input_len=series.setup.input_len,
        output_len=series.setup.output_len,
        cap=series.cap,
        base=said,
        base_cap=None if base is None else base.cap,
        limit=limit or "",
        draft_share=None if share is None else share.value,
        draft_share_source="" if share is None else share.source,
        crossover=crossed,
        points=points,
        below_floor=tuple(
            BelowFloor(
                series=series.name,
                tier=series.tier,
                concurrency=point.concurrency,
                speedup=point.speedup,
                floor=point.floor,
                advice=point.advice,
            )
            for point in points
            if point.below_floor and point.floor is not None
        ),
        not_comparable=tuple(sorted(gone, key=lambda one: one.concurrency)),
        verdict=verdict(series.tier_text, points, crossed, said, limit),
    )
    return findings, share


def _barred(series: Series, base: Series, at: int) -> str | None:
    above = beyond_caps(series, base, at)
    if above is not None:
        return above
    if at not in base.cells:
        if any(left.concurrency == at for left in base.left_out):
            return f"{base.tier_text} has no usable run at {at}"
        return f"{base.tier_text} was not measured at {at}"
    return None


def _base(base: Series) -> Base:
    if base.tier == PLAIN:
        text = "a plain server"
    else:
        text = f"{base.tier_text} on the same server{NO_PLAIN}"
    return Base(tier=base.tier, off_kind=base.off_kind, text=text)


def _share(
    series: Series, usable: Mapping[int, tuple[Cell, Cell]], shares: Mapping[str, DraftShare]
) -> DraftShare:
    quiet = {
        at: (cell.accept_length, cell.tok_s / other.tok_s)
        for at, (cell, other) in usable.items()
        if cell.accept_length is not None
    }
    known = shares.get(series.setup.name)
    return draft_share(series.tier, quiet, None if known is None else known.value)


def _points(
    series: Series,
    usable: Mapping[int, tuple[Cell, Cell]],
    share: DraftShare,
    own_tolerance: float | None,
) -> tuple[Point, ...]:
    repeated = {
        at: found
        for at, (cell, other) in usable.items()
        if (found := repeats(cell.runs, other.runs)) is not None
    }
    bounds = intervals(repeated)
    return tuple(
        _point(series, cell, other, bounds.get(at), share, own_tolerance)
        for at, (cell, other) in sorted(usable.items())
    )


def _point(
    series: Series,
    cell: Cell,
    other: Cell,
    interval: Interval | None,
    share: DraftShare,
    own_tolerance: float | None,
) -> Point:
    ratio = cell.tok_s / other.tok_s
    slack: float | None = None
    if interval is None:
        slack = tolerance(cell.runs[0], other.runs[0]) if own_tolerance is None else own_tolerance
        low, high, resolution = ratio - slack, ratio + slack, ONE_REPEAT
    else:
        low, high = interval.low, interval.high
        resolution = INCLUDES_ONE if 1.0 in interval else "resolved"
    sign = Sign.FASTER if low > 1 else Sign.SLOWER if high < 1 else Sign.TIE
    tau = cell.accept_length
    speculates = series.tier != OFF
    least = None if tau is None else floor(tau, series.tier, share.value)
    below = None if least is None else (high if interval else ratio * (1 + (slack or 0))) < least
    return Point(
        series=series.name,
        tier=series.tier,
        concurrency=cell.concurrency,
        tok_s=cell.tok_s,
        repeats=len(cell.runs),
        base_tok_s=other.tok_s,
        base_repeats=len(other.runs),
        speedup=ratio,
        interval=None if interval is None else Bounds(low=interval.low, high=interval.high),
        resolution=resolution,
        sign=sign,
        tolerance=slack,
        accept_length=tau,
        break_even=None if tau is None or not speculates else break_even(tau, ratio),
        break_even_interval=(
            None
            if tau is None or interval is None or not speculates
            else Bounds(low=tau / interval.high, high=tau / interval.low)
        ),
        floor=least,
        below_floor=below,
        advice=ADVICE if below else "",
    )


def _best(found: Sequence[SeriesFindings]) -> Crossover:
    """The crossover of the whole file: of the best speculating tier at each concurrency."""
    speculating = [one for one in found if one.tier != OFF]
    if not speculating:
        return crossover({})
    if len(speculating) == 1:
        return speculating[0].crossover
    setups = {
        (one.backend, one.engine_version, one.gpu, one.input_len, one.output_len, one.label)
        for one in speculating
    }
    if len(setups) > 1:
        return Crossover(
            low=None,
            high=None,
            reason=f"{len(speculating)} series on {len(setups)} setups: each has its own crossover "
            "under series",
        )
    here: dict[int, list[Sign]] = {}
    for one in speculating:
        for point in one.points:
            here.setdefault(point.concurrency, []).append(point.sign)
    signs = {at: _better(signs) for at, signs in here.items()}
    limits = [one.limit for one in speculating if one.limit]
    return crossover(signs, limits[0] if limits else None)


def _better(signs: Sequence[Sign]) -> Sign:
    if Sign.FASTER in signs:
        return Sign.FASTER
    return Sign.SLOWER if all(sign is Sign.SLOWER for sign in signs) else Sign.TIE


def _bases_left_out(
    every: Sequence[Series], found: Sequence[SeriesFindings]
) -> tuple[NotComparable, ...]:
    """What was taken out of series that are no subject of their own: the bases."""
    named = {one.name for one in found}
    return tuple(
        NotComparable(
            series=series.name,
            tier=series.tier,
            concurrency=left.concurrency,
            repeats=left.repeats,
            reasons=left.reasons,
        )
        for series in every
        if series.name not in named
        for left in series.left_out
    )
