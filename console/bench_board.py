"""What the benchmark screen shows: progress, curves, speed-ups, verdict.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from console.bench_plot import Mark, plot, spots
from console.formatting import MISSING, Glyphs, clock, number, seconds
from console.scene import Scene, tier_sign
from console.spans import BLANK, Line, Role, Span, line, pad, rule
from controlplane.bench_arrivals import arrivals_table
from controlplane.bench_findings import Analysis, Point
from controlplane.bench_propose import Proposal
from controlplane.bench_records import PLAIN, POISSON
from controlplane.benchrun_bar import bar, share_of
from controlplane.benchrun_messages import BenchState, BenchStatus
from engine_patch.tier import OFF

SIGNS = {"faster": "+", "slower": "-", "tie": "="}
PLOT_LEAST = 6
TABLE_MOST = 6
VERDICT_ROWS = 2
ROOMY = 30
"""Rows from which a page has room for more than one line of the gain."""


@dataclass(frozen=True, slots=True)
class BenchBoard:
    """The benchmarks of one engine and the one that is shown.

    Args:
        statuses: newest first.
        chosen: id of the one that is shown; None for the newest.
        analysis, proposal: of the shown one, None until they came.
        trouble: why something could not be read; "" if all is well.
        asked: whether the list has come at least once.
    """

    engine_id: str
    statuses: tuple[BenchStatus, ...] = ()
    chosen: str | None = None
    analysis: Analysis | None = None
    proposal: Proposal | None = None
    trouble: str = ""
    asked: bool = False

    @property
    def shown(self) -> BenchStatus | None:
        """The benchmark on the screen."""
        for status in self.statuses:
            if status.id == self.chosen:
                return status
        return self.statuses[0] if self.statuses else None

    @property
    def running(self) -> BenchStatus | None:
        """The one that runs now."""
        return next((one for one in self.statuses if one.state is BenchState.RUNNING), None)


def listed(board: BenchBoard, statuses: Sequence[BenchStatus]) -> BenchBoard:
    """The board with a new list."""
    return replace(board, statuses=tuple(statuses), trouble="", asked=True)


def moved(board: BenchBoard, status: BenchStatus) -> BenchBoard:
    """The board with a newer status of one benchmark."""
    others = tuple(status if one.id == status.id else one for one in board.statuses)
    if all(one.id != status.id for one in board.statuses):
        others = (status, *board.statuses)
    return replace(board, statuses=others, trouble="", asked=True)


def turned(board: BenchBoard, step: int) -> BenchBoard:
    """The next older (1) or newer (-1) benchmark on the screen."""
    shown = board.shown
    if shown is None:
        return board
    ids = [status.id for status in board.statuses]
    place = min(max(ids.index(shown.id) + step, 0), len(ids) - 1)
    if ids[place] == shown.id:
        return board
    return replace(board, chosen=ids[place], analysis=None, proposal=None)


def judged(
    board: BenchBoard, benchmark: str, analysis: Analysis | None, proposal: Proposal | None
) -> BenchBoard:
    """The board with what follows from the shown benchmark."""
    shown = board.shown
    if shown is None or shown.id != benchmark:
        return board
    return replace(board, analysis=analysis, proposal=proposal)


def page(scene: Scene, board: BenchBoard, cells: int, height: int) -> tuple[Line, ...]:
    """The whole page in ``cells`` by ``height``."""
    shown = board.shown
    head = _head(scene, board, cells)
    if shown is None or not shown.points:
        rows = [*head, BLANK, *_empty(board, cells)]
        return _filled(rows, cells, height, scene)
    if all(point.arrivals == POISSON for point in shown.points):
        rows = [*head, *_arrivals(scene, board, cells), BLANK]
        rows += _verdict(board, cells, scene.glyphs, gain_rows=1)
        return _filled(rows, cells, height, scene)
    table = _table(scene, board, cells)
    verdict = _verdict(board, cells, scene.glyphs, gain_rows=1 if height < ROOMY else 2)
    room = height - len(head) - len(verdict) - 1
    table = table[: max(min(len(table), room - PLOT_LEAST - 2), 2)]
    rows = [*head, *_plot(scene, board, cells, max(room - len(table), 4)), *table, *verdict]
    return _filled(rows, cells, height, scene)


def _filled(rows: Sequence[Line], cells: int, height: int, scene: Scene) -> tuple[Line, ...]:
    kept = [*rows[:height], *[BLANK] * (height - len(rows))]
    return tuple(pad(row, cells, scene.glyphs) for row in kept)


def _head(scene: Scene, board: BenchBoard, cells: int) -> list[Line]:
    shown = board.shown
    if shown is None:
        return [rule((Span("benchmarks", Role.TITLE),), (), cells, scene.glyphs)]
    place = [one.id for one in board.statuses].index(shown.id) + 1
    running = shown.state is BenchState.RUNNING
    title = f"benchmark {shown.id} by {shown.author}"
    note = f"{place}/{len(board.statuses)} {scene.glyphs.dot} {shown.state.value}"
    role = Role.ON if running else Role.LABEL
    rows = [rule((Span(title, Role.TITLE),), (Span(note, role),), cells, scene.glyphs)]
    if running:
        counts = f" {shown.done_runs}/{shown.total_runs}" if shown.total_runs else ""
        left = "" if shown.left_s is None else f", at most {seconds(shown.left_s)} left"
        done = Span(f" {bar(share_of(shown))}{counts}{left}", Role.VALUE)
        rows.append(line(done, f"  {shown.phase}"))
    else:
        ended = MISSING if shown.ended_utc_ms is None else clock(shown.ended_utc_ms, scene.zone)
        took = f" in {seconds(shown.elapsed_s)}" if shown.elapsed_s else ""
        why = f": {shown.message}" if shown.message else ""
        runs = f"{len(shown.points)} runs{took}, ended {ended}{why}"
        rows.append(line(Span(f" {runs}", Role.TEXT if not why else Role.WARNING)))
    if shown.simulated:
        rows.append(line(Span(" SIMULATED: times come from a measured table", Role.WARNING)))
    if board.trouble:
        rows.append(line(Span(f" {scene.glyphs.alarm} {board.trouble}", Role.ALARM)))
    return rows


def _empty(board: BenchBoard, cells: int) -> list[Line]:
    if not board.asked:
        return [line(Span(f" {board.trouble or 'asking the control plane'}", Role.LABEL))]
    if board.shown is not None:
        return [line(Span(" nothing measured yet", Role.LABEL))]
    words = (
        "No benchmark of this engine with its present setup. s starts one: it pins one tier after "
        "another, makes the load itself, and lets automation go on afterwards."
    )
    return [line(f" {part}") for part in wrap(words, max(cells - 2, 20))]


def _marks(scene: Scene, tiers: Sequence[str]) -> dict[str, Mark]:
    """Each tier's sign; tiers that share one get a letter instead."""
    found: dict[str, Mark] = {}
    letters = iter("abcdefghijklmnop")
    for tier in tiers:
        sign, role = (scene.glyphs.live, Role.VALUE) if tier == PLAIN else tier_sign(scene, tier)
        if any(mark.sign == sign for mark in found.values()):
            sign = next(letters)
        found[tier] = Mark(sign, role)
    return found


def _plot(scene: Scene, board: BenchBoard, cells: int, height: int) -> list[Line]:
    shown = board.shown
    assert shown is not None
    curves = spots(shown.points)
    marks = _marks(scene, list(curves))
    now = None if scene.board.sample is None else scene.board.sample.concurrency
    legend: list[Span] = []
    for tier, mark in marks.items():
        legend += [Span(mark.sign, mark.role), Span(f" {tier}  ", Role.LABEL)]
    load = "" if now is None else f"load now {now}"
    title = (Span("tok/s over concurrency", Role.TITLE), Span("  ", Role.RULE), *legend)
    rows = [rule(title, (Span(load, Role.VALUE),) if load else (), cells, scene.glyphs)]
    crossed = None if board.analysis is None else board.analysis.crossover
    rows += plot(
        curves,
        marks,
        band=(None, None) if crossed is None else (crossed.low, crossed.high),
        now=now,
        cells=cells,
        height=height - 1,
        glyphs=scene.glyphs,
    )
    return rows


def _arrivals(scene: Scene, board: BenchBoard, cells: int) -> list[Line]:
    """By rate: a crossover over concurrency does not follow from what was asked for."""
    title = (Span("Poisson arrivals", Role.TITLE),)
    found = () if board.analysis is None else board.analysis.arrivals
    rows = [line(Span(text, Role.TEXT)) for text in arrivals_table(found)[1:]]
    return [rule(title, (), cells, scene.glyphs), *rows]


def _table(scene: Scene, board: BenchBoard, cells: int) -> list[Line]:
    analysis = board.analysis
    if analysis is None or not analysis.points:
        return [rule((Span("speed-up", Role.TITLE),), (), cells, scene.glyphs), BLANK]
    base = next((one.base for one in analysis.series if one.base is not None), None)
    against = "speed-up"
    if base is not None:
        # How the base came about is for the report; here its name must fit.
        against = f"speed-up against {base.text.partition(' on the same server')[0]}"
    note = "+ faster  - slower  = tie"
    rows = [
        rule((Span(against, Role.TITLE),), (Span(note, Role.LABEL),), cells, scene.glyphs),
    ]
    tiers = list(dict.fromkeys(point.tier for point in analysis.points if point.tier != OFF))
    tiers = tiers or list(dict.fromkeys(point.tier for point in analysis.points))
    head = "".join(f"{tier:<20}" for tier in tiers)
    rows.append(line(Span(f" {'req':>4}  {'base':>7}  {head}", Role.LABEL)))
    by_load: dict[int, dict[str, Point]] = {}
    for point in analysis.points:
        by_load.setdefault(point.concurrency, {})[point.tier] = point
    for at, here in sorted(by_load.items())[:TABLE_MOST]:
        first = next(iter(here.values()))
        spans = [Span(f" {at:>4}  {number(first.base_tok_s):>7}  ", Role.VALUE)]
        spans += [_speedup(scene, here.get(tier)) for tier in tiers]
        rows.append(line(spans))
    return rows


def _speedup(scene: Scene, point: Point | None) -> Span:
    if point is None:
        return Span(f"{MISSING:<20}", Role.LABEL)
    sign = SIGNS.get(point.sign.value, "?")
    bounds = "one repeat"
    if point.interval is not None:
        bounds = f"{point.interval.low:.2f}{scene.glyphs.to}{point.interval.high:.2f}"
    below = f" {scene.glyphs.alarm}" if point.below_floor else ""
    role = {"+": Role.ON, "-": Role.OFF}.get(sign, Role.TEXT)
    return Span(f"{f'{sign} {point.speedup:.2f} {bounds}{below}':<20}", role)


def _verdict(board: BenchBoard, cells: int, glyphs: Glyphs, *, gain_rows: int) -> list[Line]:
    words: list[tuple[str, Role, int]] = []
    if board.analysis is not None:
        words.append((board.analysis.verdict, Role.VALUE, VERDICT_ROWS))
        gone = len(board.analysis.not_comparable)
        if gone:
            first = board.analysis.not_comparable[0]
            more = f" and {gone - 1} more" if gone > 1 else ""
            reason = f"{first.tier} at {first.concurrency}{more}: {first.reasons[0]}"
            words.append((f"{glyphs.alarm} not comparable: {reason}", Role.WARNING, 1))
    if board.proposal is not None:
        words.append((f"a applies: {board.proposal.gain}", Role.LABEL, gain_rows))
    rows: list[Line] = []
    for text, role, most in words:
        parts = wrap(text, max(cells - 3, 20))
        more = glyphs.ellipsis if len(parts) > most else ""
        kept = parts[:most]
        rows += [line(Span(f" {part}", role)) for part in kept[:-1]]
        rows.append(line(Span(f" {kept[-1]}{more}", role)))
    return rows
