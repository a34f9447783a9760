"""The header, the notices under it, and the essentials for a very small terminal.  Pure."""

from __future__ import annotations

from textwrap import wrap

from console.asked import SHOWN_AFTER_MS, Ask, waiting_words
from console.card import confirmation, mode_words, simulated, why
from console.formatting import clock, countdown, cut, fit, seconds, zone_name
from console.scene import LinkState, Scene, freshness, override_left_s
from console.spans import BLANK, Line, Role, Span, line, pad, plain, spread, width

NOTICES = 3
"""Most rows of notices; the last one counts what is left out."""


def header(scene: Scene, cells: int) -> Line:
    """``specdeck  LIVE ● h200-0 · Qwen3-8B    poll 0.5s  age 0.3s  12:04:31 UTC``."""
    right = _right(scene, cells)
    left = line(Span(" specdeck", Role.TITLE), "  ", _state(scene), " ", engine_words(scene))
    return spread(left, right, cells, scene.glyphs)


def _right(scene: Scene, cells: int) -> Line:
    fresh = freshness(scene)
    role = Role.WARNING if fresh.stale else Role.TEXT
    at = f"{clock(scene.now_ms, scene.zone)} {zone_name(scene.now_ms, scene.zone)} "
    poll = f"poll {seconds(scene.board.poll_s)}  " if cells >= 80 else ""
    return line(Span(f"  {poll}", Role.LABEL), Span(fresh.words, role), Span(f"  {at}", Role.LABEL))


def _state(scene: Scene) -> Span:
    glyphs = scene.glyphs
    if scene.frozen:
        return Span(f"FROZEN {glyphs.frozen}", Role.BANNER)
    if scene.link.state is LinkState.LOST:
        return Span(f"LOST {glyphs.alarm}", Role.BANNER)
    if scene.link.state is LinkState.CONNECTING:
        return Span("CONNECTING", Role.WARNING)
    if freshness(scene).stale:
        return Span(f"STALE {glyphs.alarm}", Role.BANNER)
    return Span(f"LIVE {glyphs.live}", Role.ON)


def engine_words(scene: Scene) -> Line:
    """The engine's name, its place among several, and its model."""
    board = scene.board
    name = board.name or board.engine_id
    count = ""
    if len(scene.engines) > 1 and board.engine_id in scene.engines:
        count = f" [{scene.engines.index(board.engine_id) + 1}/{len(scene.engines)}]"
    model = ""
    if board.facts is not None and board.facts.identity is not None:
        model = f" {scene.glyphs.dot} {board.facts.identity.model.rsplit('/', 1)[-1]}"
    return line(Span(f"{name}{count}", Role.VALUE), Span(model, Role.LABEL))


def notices(scene: Scene, size: int) -> tuple[Line, ...]:
    """What an operator must know now, worst first, in at most three rows.

    Long ones are wrapped while there is room, else cut: the help screen has them in full.
    """
    found = [*_link_notices(scene), *_engine_notices(scene)]
    mark = scene.glyphs.alarm
    rows: list[tuple[str, Role]] = []
    for text, role in found:
        first, *others = wrap(text, max(size - 4, 20)) or [""]
        rows.append((f" {mark} {first}", role))
        rows += [(f"   {other}", role) for other in others]
    if len(rows) > NOTICES:
        rows = [(f" {mark} {text}", role) for text, role in found]
    if len(rows) > NOTICES:
        more = len(rows) - NOTICES + 1
        rest = (f" {mark} and {more} more: ? shows all", Role.WARNING)
        rows = [*rows[: NOTICES - 1], rest]
    return tuple(pad((Span(cut(text, size, scene.glyphs), role),), size) for text, role in rows)


def all_notices(scene: Scene) -> tuple[str, ...]:
    """Every notice in full, for the help screen."""
    return tuple(text for text, _ in (*_link_notices(scene), *_engine_notices(scene)))


def _link_notices(scene: Scene) -> list[tuple[str, Role]]:
    found: list[tuple[str, Role]] = []
    if scene.frozen:
        missed = "1 tick" if scene.missed == 1 else f"{scene.missed} ticks"
        held = f"{scene.past} of" if scene.past else "frozen at"
        found.append(
            (
                f"{held} {clock(scene.now_ms, scene.zone)}, "
                f"{seconds(scene.behind_ms / 1000)} and {missed} behind, p goes on",
                Role.BANNER,
            )
        )
    if scene.link.state is LinkState.LOST:
        at = scene.link.retry_at_ms
        left_s = None if at is None else (at - scene.now_ms) / 1000
        when = "" if left_s is None else f", retry in {seconds(left_s)}"
        if left_s is not None and left_s <= 0:
            when = ", trying again"
        found.append((f"control plane lost{when}: {scene.link.reason}", Role.ALARM))
    return found


def _engine_notices(scene: Scene) -> list[tuple[str, Role]]:
    board, now, role = scene.board, scene.now_ms, Role.WARNING
    found: list[tuple[str, Role]] = []
    tick, gap, sample = board.tick, board.gap, board.sample

    def here(ask: Ask) -> bool:
        return ask.engine_id == board.engine_id

    alarms = () if tick is None else tick.alarms
    found += [(alarm.text, Role.ALARM) for alarm in alarms]
    if gap is not None:
        if not any(gap.message in alarm.text for alarm in alarms):
            found.append((gap.message, Role.ALARM))
        if lease := lease_words(scene):
            found.append((lease, Role.WARNING))
    told = tick is not None and any("simulated times" in text for text in tick.warnings)
    if sample is not None and sample.simulation_valid is False and not told:
        lag = sample.simulation_lag
        by = "" if lag is None else f" by {100 * lag:.1f} %"
        found.append((f"simulation fell behind{by}: this run's times are invalid", Role.ALARM))
    if tick is not None:
        found += [(text, Role.WARNING) for text in tick.warnings]
    found += [
        (waiting_words(ask, board.tick.confirmed if here(ask) and board.tick else None, now), role)
        for ask in scene.asks
        if now - ask.at_ms >= SHOWN_AFTER_MS
    ]
    return found


def lease_words(scene: Scene) -> str:
    """When the engine stops following the last command if nothing more is heard."""
    sample = scene.board.sample
    if sample is None or sample.lease_remaining_s is None:
        return ""
    left = sample.lease_remaining_s - max(scene.now_ms - sample.at_utc_ms, 0) / 1000
    return f"engine's lease ends in {seconds(left)}" if left > 0 else "engine's lease has ended"


def essentials(scene: Scene, cells: int, height: int) -> tuple[Line, ...]:
    """Mode, why and age alone, for a terminal under 60x16."""
    fresh = freshness(scene)
    left = override_left_s(scene)
    mark = simulated(scene)
    confirm, role = confirmation(scene)
    name = scene.board.name or scene.board.engine_id
    age = Span(f"{fresh.words} ", Role.WARNING if fresh.stale else Role.TEXT)
    room = max(cells - width((age,)) - 2, 0)
    rows: list[Line] = [
        spread(line(" ", Span(cut(name, room, scene.glyphs), Role.VALUE)), (age,), cells),
        line(" ", mode_words(scene)),
        line(" ", Span(fit(cells - 2, *confirm, glyphs=scene.glyphs), role)),
    ]
    if left is not None:
        rows.append(line(Span(f" OVERRIDE {countdown(left)} left", Role.WARNING)))
    if mark:
        rows.append(line(Span(f" {mark}", Role.WARNING)))
    rows += [line(Span(plain(notice).rstrip(), notice[0].role)) for notice in notices(scene, cells)]
    rows += [line(f" {text}") for text in wrap(f"why {why(scene)[0]}", max(cells - 2, 10))]
    rows = rows[: max(height - 1, 1)]
    rows += [BLANK] * (height - 1 - len(rows))
    keys = line(Span(" ? Help  q Quit", Role.KEY), Span("  60x16 shows more", Role.LABEL))
    return tuple(pad(row, cells, scene.glyphs) for row in (*rows, keys)[:height])
