"""What a decode step costs per tier, with the present load marked on it.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from console.board import load
from console.card import last_tier
from console.formatting import MISSING, cut, number, seconds
from console.scene import Scene, freshness, tier_sign
from console.spans import Line, Role, Span, line, pad, rule
from controlplane.messages import Costs
from engine_patch.costs import ContextBand, StepCost, bucket, context_band
from engine_patch.tier import TierName

BANDS = tuple(ContextBand)
LABEL = 10
CELL_SHORT, CELL = 9, 18
"""Cells of one tier's column: step time alone, with tokens per second."""


@dataclass(frozen=True, slots=True)
class Table:
    """The cells of one context band, by (tier, bucket)."""

    band: ContextBand
    tiers: tuple[TierName, ...]
    buckets: tuple[int, ...]
    cells: dict[tuple[TierName, int], StepCost]

    def tok_s(self, tier: TierName, at: int) -> float | None:
        """Tokens per second of the whole batch, with the accept length of the table."""
        cost = self.cells.get((tier, at))
        if cost is None or cost.tokens_per_step is None:
            return None
        return 1000 * cost.tokens_per_step / cost.mean_ms

    def best(self, at: int) -> TierName | None:
        """The tier with the most tokens per second; None unless all of them are known."""
        rates = {tier: self.tok_s(tier, at) for tier in self.tiers}
        known = {tier: rate for tier, rate in rates.items() if rate is not None}
        if len(known) < len(self.tiers) or len(known) < 2:
            return None
        return max(known, key=lambda tier: known[tier])


def present_band(scene: Scene) -> ContextBand:
    """The context band of the requests that run now."""
    sample = scene.board.sample
    if sample is None or not sample.concurrency or sample.kv.committed is None:
        return BANDS[0]
    return context_band(sample.kv.committed / sample.concurrency)


def table(scene: Scene, costs: Costs, band: ContextBand | None) -> Table:
    """The cells of ``band``; without one the present band, or the nearest that has cells."""
    measured = [one for one in BANDS if any(cost.band is one for cost in costs.costs)]
    wanted = present_band(scene) if band is None else band
    if band is None and measured and wanted not in measured:
        place = BANDS.index(wanted)
        wanted = min(measured, key=lambda one: abs(BANDS.index(one) - place))
    cells = {(cost.tier, cost.bucket): cost for cost in costs.costs if cost.band is wanted}
    order = [tier for tier in scene.board.tiers if any(key[0] == tier for key in cells)]
    order += sorted({key[0] for key in cells} - set(order))
    return Table(wanted, tuple(order), tuple(sorted({key[1] for key in cells})), cells)


def now_bucket(scene: Scene) -> int | None:
    """The bucket of the busiest replica's running requests."""
    sample = scene.board.sample
    running = None if sample is None else load(sample)
    return None if running is None else bucket(running)


def lines(
    scene: Scene, size: int, height: int, band: ContextBand | None = None
) -> tuple[Line, ...]:
    """The table in ``size`` by ``height``; rows far from the present load are left out first."""
    glyphs = scene.glyphs
    looked = scene.looked.costs
    costs = looked.value
    head = _rule(scene, size, costs, band)
    if costs is None or not costs.costs:
        if looked.trouble:
            text = f"could not be read: {looked.trouble}"
        elif costs is None:
            text = "reading the step-cost table"
        else:
            text = "not measured for this setup: run specdeck bench"
        return head, pad(line(Span(f" {text}", Role.WARNING)), size, glyphs)
    found = table(scene, costs, band)
    wide = LABEL + len(found.tiers) * CELL <= size
    width = CELL if wide else CELL_SHORT
    count = max((size - LABEL) // width, 1)
    tiers = found.tiers[:count]
    runs = last_tier(scene)
    titles = [Span(f" {'running':<{LABEL - 1}}", Role.LABEL)]
    for tier in tiers:
        sign, role = tier_sign(scene, tier)
        mark = glyphs.cursor if tier == runs else " "
        text = f"{mark}{sign} {tier}"
        titles.append(Span(f"{cut(text, width - 1, glyphs):<{width}}", role))
    rows = [head, pad(line(*titles), size, glyphs)]
    here = now_bucket(scene)
    shown = _around(found.buckets, here, max(height - 3, 1))
    rows += [_row(scene, size, found, tiers, at, here, wide) for at in shown]
    rows.append(_legend(scene, size, found, here))
    return tuple(rows[:height])


def _around(buckets: tuple[int, ...], here: int | None, count: int) -> tuple[int, ...]:
    if len(buckets) <= count:
        return buckets
    place = buckets.index(here) if here in buckets else 0
    first = min(max(place - count // 2, 0), len(buckets) - count)
    return buckets[first : first + count]


def _rule(scene: Scene, size: int, costs: Costs | None, band: ContextBand | None) -> Line:
    dot = f" {scene.glyphs.dot} "
    title = "cost of a decode step: ms, tok/s"
    notes = []
    if costs is not None and costs.costs:
        shown = table(scene, costs, band).band
        given = "" if band is not None else ", now's"
        notes = [f"context {_band_words(shown, scene)}{given}", costs.source]
    note = line(Span(dot.join(notes), Role.LABEL)) if notes else ()
    return rule((Span(title, Role.TITLE),), note, size, scene.glyphs)


def _band_words(band: ContextBand, scene: Scene) -> str:
    text = band.value.replace("<=", scene.glyphs.at_most)
    return f"{text} tok"


def _row(
    scene: Scene,
    size: int,
    found: Table,
    tiers: tuple[TierName, ...],
    at: int,
    here: int | None,
    wide: bool,
) -> Line:
    glyphs = scene.glyphs
    mark = glyphs.cursor if at == here else " "
    spans = [Span(f"{mark}{number(at):>{LABEL - 2}} ", Role.VALUE if at == here else Role.LABEL)]
    best, runs = found.best(at), last_tier(scene)
    for tier in tiers:
        cost = found.cells.get((tier, at))
        time = MISSING if cost is None else number(cost.mean_ms, 2)
        guess = "" if cost is None or cost.measured else "~"
        text = f"{guess}{time:>{7 - len(guess)}}"
        if wide:
            star = "*" if tier == best else " "
            text += f" {number(found.tok_s(tier, at)):>7}{star}"
        now = at == here and tier == runs
        text = f"[{text.strip()}]" if now else f" {text}"
        role = Role.VALUE if now else Role.TEXT if cost is None or cost.measured else Role.LABEL
        spans.append(Span(f"{text:<{CELL if wide else CELL_SHORT}}", role))
    return pad(line(*spans), size, glyphs)


def _legend(scene: Scene, size: int, found: Table, here: int | None) -> Line:
    sample = scene.board.sample
    running = None if sample is None else load(sample)
    if running is None:
        text = "no load is known now"
    elif here in found.buckets:
        text = f"{scene.glyphs.cursor}[ ] now: {running} req"
    else:
        text = f"now {running} req: outside the table"
    if freshness(scene).stale:
        text += f", {freshness(scene).words}"
    age = ""
    if scene.looked.costs.at_ms is not None:
        ago = max(scene.now_ms - scene.looked.costs.at_ms, 0) / 1000
        age = f", read {seconds(ago)} ago"
    text = f" {text}  * most tok/s  ~ interpolated{age}"
    return pad(line(Span(cut(text, size, scene.glyphs), Role.LABEL)), size, scene.glyphs)
