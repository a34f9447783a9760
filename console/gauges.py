"""The trend table: value, last two minutes, fixed range and thresholds of each number.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.board import UNCONFIRMED, WINDOW_MS, Board, Point, load
from console.card import last_tier
from console.formatting import MISSING, cut, number, short
from console.scene import Scene, freshness, strip_signs, tier_sign
from console.spans import BLANK, Line, Role, Span, line, pad, recolour
from console.trend import Range, buckets, draw, means, strip
from engine_patch.tier import OFF, TierShape
from store.observations import Sample, Source
from store.policies import FixedPolicy, HysteresisPolicy

LABEL, NOW, UNIT, RANGE, THRESHOLDS = 15, 6, 6, 7, 12
"""Widths of the table's columns in cells; the trend takes what is left."""
FIXED = LABEL + NOW + 1 + UNIT + 1 + 1 + RANGE + 1 + THRESHOLDS


@dataclass(frozen=True, slots=True)
class Gauge:
    """One row: what is shown now, its points, its fixed range and its thresholds in words."""

    label: str
    now: str
    unit: str
    value: Callable[[Point], float | None]
    within: Range
    thresholds: str = ""

    @property
    def ends(self) -> tuple[str, str]:
        """The range's ends as text."""
        return short(self.within.low), short(self.within.top)


def gauges(scene: Scene) -> tuple[Gauge, ...]:
    """The five rows of the live screen."""
    board, sample = scene.board, scene.board.sample
    tick = board.sampled
    cap = _cap(board)
    bounds, high = load_thresholds(scene)
    low_text = accept_floor(scene)
    kv = None if sample is None else sample.kv.used
    kv_high = _kv_high(board)
    return (
        Gauge(
            "concurrency" if _replicas(board) == 1 else "busiest replica",
            number(None if sample is None else load(sample)),
            "req",
            lambda point: point.concurrency,
            Range(0, cap or board.tops["concurrency"], high),
            bounds,
        ),
        Gauge(
            "accept length",
            number(None if sample is None else sample.accept_length, 2),
            "tok",
            lambda point: point.accept_length,
            Range(1, _longest(board)),
            low_text,
        ),
        Gauge(
            "KV slots",
            number(None if kv is None else 100 * kv, 1),
            "%",
            lambda point: None if point.kv_share is None else 100 * point.kv_share,
            Range(0, 100, None if kv_high is None else 100 * kv_high),
            "" if kv_high is None else f"{scene.glyphs.alarm}{100 * kv_high:g}",
        ),
        Gauge(
            "decode",
            number(None if tick is None else tick.decode_tok_s),
            "tok/s",
            lambda point: point.decode_tok_s,
            Range(0, board.tops["decode"]),
        ),
        Gauge(
            "queue",
            number(None if sample is None else sample.queued),
            "req",
            lambda point: point.queued,
            Range(0, board.tops["queue"]),
        ),
    )


def table(scene: Scene, cells: int, rows: int = 1) -> tuple[Line, ...]:
    """The whole table in ``cells`` cells, each trend ``rows`` lines high, mode strip last."""
    columns = max(cells - FIXED, 0)
    dim = freshness(scene).stale
    lines: list[Line] = [heading(scene, columns)]
    for gauge in gauges(scene):
        drawn = gauge_lines(scene, gauge, columns, rows)
        lines += [recolour(row, Role.STALE) for row in drawn] if dim else drawn
    lines.append(mode_strip(scene, columns, dim))
    return tuple(pad(row, cells, scene.glyphs) for row in lines)


def heading(scene: Scene, columns: int) -> Line:
    """Column titles; the trend's title says where the numbers come from."""
    sample = scene.board.sample
    source = "" if sample is None else _source(sample)
    window = f"last {WINDOW_MS // 60_000} min"
    titled = f"{window} {scene.glyphs.dot} {source}" if source else window
    shown = titled if len(titled) <= columns else cut(window, columns, scene.glyphs)
    text = (
        f"{'':<{LABEL}}{'now':>{NOW}} {'':<{UNIT}} {shown:<{columns}} {'range':<{RANGE}} thresholds"
    )
    return line(Span(text, Role.LABEL))


def _source(sample: Sample) -> str:
    return "GET /speculation" if sample.source is Source.SPECULATION else "/v1/loads, /metrics"


def gauge_lines(scene: Scene, gauge: Gauge, columns: int, rows: int) -> list[Line]:
    """One gauge, ``rows`` lines high; words stand beside the lowest line, the top above."""
    points = [(point.at_ms, gauge.value(point)) for point in scene.board.history]
    values = means(buckets(points, scene.board.axis_ms, WINDOW_MS, columns))
    drawn = draw(values, gauge.within, rows, scene.glyphs)
    low, top = gauge.ends
    result: list[Line] = []
    for row, trend in enumerate(drawn):
        lowest = row == rows - 1
        if lowest:
            label = Span(f" {gauge.label:<{LABEL - 1}}", Role.LABEL)
            now = Span(f"{gauge.now:>{NOW}}", Role.VALUE)
            head = line(label, now, Span(f" {gauge.unit:<{UNIT}} ", Role.LABEL))
        else:
            head = line(" " * (LABEL + NOW + 1 + UNIT + 1))
        ends = f"{low}{scene.glyphs.to}{top}" if lowest else ""
        tail = BLANK
        if lowest:
            tail = line(
                Span(f" {ends:<{RANGE}} ", Role.LABEL),
                cut(gauge.thresholds, THRESHOLDS, scene.glyphs),
            )
        result.append(line(head, pad(trend, columns), tail))
    return result


def mode_strip(scene: Scene, columns: int, dim: bool) -> Line:
    """The confirmed tier on the trends' time axis, one sign per column."""
    board, glyphs = scene.board, scene.glyphs
    signs = strip_signs(board.tiers)
    points = [(point.at_ms, point.tier) for point in board.history]
    found = buckets(points, board.axis_ms, WINDOW_MS, columns)

    def sign(tier: str) -> tuple[str, Role]:
        if tier == UNCONFIRMED:
            return glyphs.unknown, Role.WARNING
        return signs.get(tier, glyphs.unknown), tier_sign(scene, tier)[1]

    drawn = strip(found, sign, glyphs.nothing)
    legend = [f"{signs[tier]} {tier}" for tier in board.tiers] + [f"{glyphs.nothing} no data"]
    room = RANGE + 1 + THRESHOLDS
    shown = "  ".join(legend)
    if len(shown) > room:
        shown = "  ".join([*(f"{signs[tier]} {tier}" for tier in board.tiers)])
    if len(shown) > room:
        shown = f"digit=steps {glyphs.nothing}=none"
    now = cut(last_tier(scene) or MISSING, NOW + 1 + UNIT, glyphs)
    head = line(
        Span(f" {'mode':<{LABEL - 1}}", Role.LABEL),
        Span(f"{now:>{NOW}}" if len(now) <= NOW else now, Role.VALUE),
    )
    head = pad(head, LABEL + NOW + 1 + UNIT + 1)
    strip_line = line(head, pad(drawn, columns))
    strip_line = recolour(strip_line, Role.STALE) if dim else strip_line
    return line(strip_line, Span(f" {shown}", Role.LABEL))


def load_thresholds(scene: Scene) -> tuple[str, float | None]:
    """``↓16 ↑24`` around the running tier, and the load from which a busier tier is due."""
    policy = None if scene.board.policy is None else scene.board.policy.policy
    if not isinstance(policy, HysteresisPolicy) or not policy.boundaries:
        return "", None
    tier = last_tier(scene)
    place = policy.tiers.index(tier) if tier in policy.tiers else 0
    below = policy.boundaries[max(place - 1, 0)]
    above = policy.boundaries[min(place, len(policy.boundaries) - 1)]
    glyphs = scene.glyphs
    return f"{glyphs.down}{below.down_at} {glyphs.up}{above.up_at}", float(above.up_at)


def accept_floor(scene: Scene) -> str:
    """The accept length below which the running tier is left: ``↓1.80``."""
    policy = None if scene.board.policy is None else scene.board.policy.policy
    tier = last_tier(scene)
    if not isinstance(policy, HysteresisPolicy) or tier is None:
        return ""
    floor = policy.min_accept_length.get(tier)
    return "" if floor is None else f"{scene.glyphs.down}{floor:.2f}"


def kv_guard(scene: Scene) -> str:
    """``; off at 92 %, back under 80 %``, for a sentence; "" without such a guard."""
    policy = None if scene.board.policy is None else scene.board.policy.policy
    high, low = getattr(policy, "kv_high", None), getattr(policy, "kv_low", None)
    if high is None or low is None:
        return ""
    return f"; off at {100 * high:g} %, back under {100 * low:g} %"


def _kv_high(board: Board) -> float | None:
    policy = None if board.policy is None else board.policy.policy
    return None if policy is None or isinstance(policy, FixedPolicy) else policy.kv_high


def _replicas(board: Board) -> int:
    if board.facts is None or board.facts.identity is None:
        return 1
    return board.facts.identity.dp_size


def _cap(board: Board) -> float | None:
    """The cap on running requests of one replica, if the engine tells it."""
    if board.facts is None or board.facts.identity is None:
        return None
    cap = board.facts.identity.max_running_requests
    return None if cap is None else float(cap)


def _longest(board: Board) -> float:
    """The greatest possible accept length: steps + 1 of the deepest tier."""
    steps = [TierShape.parse(tier).num_steps for tier in board.tiers if tier != OFF]
    return float(max(steps, default=3) + 1)
