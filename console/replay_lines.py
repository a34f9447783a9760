"""The replay screen's own lines: header, time line, notices.  Pure."""

from __future__ import annotations

from console.formatting import Glyphs, clock, cut, moment, number, seconds, zone_name
from console.header import NOTICES, notices
from console.replay_board import ReplayBoard
from console.scene import Scene, strip_signs, tier_sign
from console.spans import BLANK, Line, Role, Span, line, pad, spread
from console.trend import runs
from controlplane.replay_player import Mark
from controlplane.replay_strip import cell_of

EDGE = 10
"""Cells at either end of the time line, for the times."""
SIGNS = {Mark.DECISION: "d", Mark.MARKER: "m", Mark.DIFFERENCE: "x"}
"""What stands on the time line; an alarm has its own sign everywhere."""


def line_cells(columns: int) -> int:
    """Cells of the time line on a screen so wide."""
    return max(columns - 2 * EDGE - 2, 8)


def header(scene: Scene, replay: ReplayBoard, cells: int) -> Line:
    """``specdeck  REPLAY ‖ night · h200-0 · 11-29 11:31–12:52   paused ×4  11:57:44 UTC``."""
    glyphs, state = scene.glyphs, replay.state
    left = line(Span(" specdeck", Role.TITLE), "  ", Span("REPLAY", Role.BANNER), " ")
    if state is None:
        return pad(line(left, Span("opening", Role.WARNING)), cells, glyphs)
    sign, word = (glyphs.frozen, "paused")
    if state.playing:
        sign, word = (glyphs.right, "playing")
    elif state.ended:
        word = "at its end"
    session = state.session
    engine = scene.board.name or session.engine_id
    span = ""
    if session.started_utc_ms is not None and session.ended_utc_ms is not None:
        ended = clock(session.ended_utc_ms, scene.zone)[:5]
        begun = moment(session.started_utc_ms, scene.zone)
        span = f" {glyphs.dot} {begun}{glyphs.to}{ended}"
    policy = scene.board.policy
    version = "" if policy is None else f" {glyphs.dot} policy v{policy.version}"
    rest = f" {glyphs.dot} {engine}{span}{version}"
    left = line(left, f"{sign} ", Span(session.name, Role.VALUE), Span(rest, Role.LABEL))
    times = "x" if glyphs.ascii else "×"
    at = f"{clock(replay.now_ms, scene.zone)} {zone_name(replay.now_ms, scene.zone)}"
    right = line(Span(f"  {word} {times}{state.speed:g}", Role.VALUE), Span(f"  {at} ", Role.LABEL))
    return spread(left, right, cells, glyphs)


def time_line(scene: Scene, replay: ReplayBoard, cells: int, rows: int) -> tuple[Line, ...]:
    """Marks and position, the recorded tiers, and the what-if's under them.

    Args:
        rows: 2, or 3 with those of the what-if.
    """
    strip, state, glyphs = replay.strip, replay.state, scene.glyphs
    if strip is None or state is None:
        return (pad(line(Span(" the time line is being read", Role.LABEL)), cells),)
    here = cell_of(state.place, state.ticks, strip.cells)
    ends = "||" if glyphs.ascii else "├┤"
    first, last = clock(strip.first_utc_ms, scene.zone), clock(strip.last_utc_ms, scene.zone)
    drawn = [
        line(
            Span(f" {first} ", Role.LABEL),
            Span(ends[0], Role.RULE),
            _marks(scene, replay, here),
            Span(ends[1], Role.RULE),
            Span(f" {last}", Role.LABEL),
        ),
        line(
            Span(f" {'recorded':<{EDGE}}", Role.LABEL),
            _tiers(scene, strip.tiers, frozenset(strip.gaps)),
        ),
    ]
    if rows > 2 and strip.what_if:
        gaps: frozenset[int] = frozenset()
        drawn.append(
            line(Span(f" {'what-if':<{EDGE}}", Role.LABEL), _tiers(scene, strip.what_if, gaps))
        )
    return tuple(pad(row, cells, glyphs) for row in drawn[:rows])


def _marks(scene: Scene, replay: ReplayBoard, here: int) -> Line:
    strip, glyphs = replay.strip, scene.glyphs
    assert strip is not None
    stroke = "-" if glyphs.ascii else "─"
    signs: dict[int, tuple[str, Role]] = {}
    # What matters more is written over what matters less.
    for mark, role in (
        (Mark.DECISION, Role.TEXT),
        (Mark.DIFFERENCE, Role.MIDDLE),
        (Mark.MARKER, Role.VALUE),
        (Mark.ALARM, Role.ALARM),
    ):
        for cell in strip.marks.get(mark, ()):
            signs[cell] = (SIGNS.get(mark, glyphs.alarm), role)
    signs[here] = (glyphs.live, Role.ON)
    return runs(signs.get(cell, (stroke, Role.RULE)) for cell in range(strip.cells))


def _tiers(scene: Scene, tiers: tuple[str | None, ...], gaps: frozenset[int]) -> Line:
    signs = strip_signs(scene.board.tiers)
    cells: list[tuple[str, Role]] = []
    for cell, tier in enumerate(tiers):
        if cell in gaps or tier is None:
            cells.append((scene.glyphs.nothing, Role.LABEL))
        else:
            sign = signs.get(tier, scene.glyphs.unknown)
            cells.append((sign, tier_sign(scene, tier)[1]))
    return runs(cells)


def replay_notices(scene: Scene, replay: ReplayBoard, size: int) -> tuple[Line, ...]:
    """What must be known at this position, worst first, in at most three rows."""
    own = [
        pad((Span(cut(f" {scene.glyphs.alarm} {text}", size, scene.glyphs), role),), size)
        for text, role in _own_notices(replay)
    ]
    return (*own, *notices(scene, size))[:NOTICES]


def _own_notices(replay: ReplayBoard) -> list[tuple[str, Role]]:
    found: list[tuple[str, Role]] = []
    state, verified, marker = replay.state, replay.verified, replay.marker
    if replay.trouble:
        found.append((f"the replay does not answer: {replay.trouble}", Role.ALARM))
    if replay.busy:
        found.append((f"{replay.busy}, the replay goes on meanwhile", Role.BANNER))
    if marker is not None:
        text = f": {marker.text}" if marker.text else ""
        found.append((f"marker {marker.kind} by {marker.author}{text}", Role.VALUE))
    if verified is not None:
        found.append(verified_words(replay))
    if state is not None and state.session.unreadable:
        count = number(state.session.unreadable)
        found.append((f"{count} damaged rows are left out", Role.WARNING))
    if state is not None and not state.session.complete:
        found.append(("this recording was not ended: its last seconds may be missing", Role.LABEL))
    return found


def verified_words(replay: ReplayBoard) -> tuple[str, Role]:
    """What the verification found, in a line."""
    found = replay.verified
    assert found is not None
    unknown = sum(span.ticks for span in found.not_verifiable)
    rest = f", {unknown} not verifiable" if unknown else ""
    told = f"{found.verified} of {found.ticks} verdicts verified{rest}"
    if found.identical:
        return f"verified: identical, {told} (v shows more)", Role.ON
    switches = len(found.switches_differing)
    also = f", {switches} engine switches differ" if switches else ""
    return f"verified: DIFFERENT, {found.differing} differ{also}; {told} (v shows more)", Role.ALARM


def place_words(replay: ReplayBoard) -> str:
    """``observation 128 of 221, 63s of 2m03s``, for a note."""
    state = replay.state
    if state is None:
        return ""
    return (
        f"observation {state.seq}, {state.place + 1} of {state.ticks}, "
        f"{seconds(state.tape_s)} of {seconds(state.length_s)}"
    )


def small(scene: Scene, replay: ReplayBoard, cells: int) -> Line:
    """The header of a very small terminal: the mark is never cut."""
    state = replay.state
    word = "opening" if state is None else "playing" if state.playing else "paused"
    at = clock(replay.now_ms, scene.zone) if replay.now_ms else ""
    left = line(Span(" REPLAY", Role.BANNER), f" {word}")
    return spread(left, line(f"{at} ") if at else BLANK, cells, scene.glyphs)


def sign_rows(glyphs: Glyphs) -> tuple[tuple[str, str], ...]:
    """The time line's signs and what they mean."""
    return (
        (glyphs.live, "where the replay stands"),
        ("d", "a decision, taken or settled"),
        ("x", "a what-if or the verification parts from the recording here"),
        ("m", "a marker: a deploy, an incident, a note"),
        (glyphs.alarm, "an alarm was raised"),
        (glyphs.nothing, "a poll failed or nothing is known"),
    )
