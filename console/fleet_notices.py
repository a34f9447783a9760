"""Header and notices of screens that show no single engine.  Pure."""

from __future__ import annotations

from textwrap import wrap

from console.asked import SHOWN_AFTER_MS, waiting_words
from console.formatting import clock, cut, seconds, zone_name
from console.lookups import EVERY_S, FLEET_ASIDE_S, Looked
from console.places import BY_ID, Need
from console.scene import LinkState, Scene
from console.spans import Line, Role, Span, line, pad, spread

NOTICES = 3
STALE_READS = 3
"""Reads that may be missing before what stands on the screen is old."""
STALE_LEAST_S = 3.0


def fleet_header(scene: Scene, cells: int) -> Line:
    """``specdeck  FLEET ● 200 engines      age 0.4s  12:04:31 UTC``."""
    glyphs = scene.glyphs
    link, age, old = reading(scene)
    if scene.frozen:
        state = Span(f"FROZEN {glyphs.frozen}", Role.BANNER)
    elif link is LinkState.LOST:
        state = Span(f"LOST {glyphs.alarm}", Role.BANNER)
    elif link is LinkState.CONNECTING:
        state = Span("CONNECTING", Role.WARNING)
    elif old:
        state = Span(f"STALE {glyphs.alarm}", Role.BANNER)
    else:
        state = Span(f"LIVE {glyphs.live}", Role.ON)
    words = "no data" if age is None else f"{'STALE' if old else 'age'} {seconds(age)}"
    at = f"{clock(scene.now_ms, scene.zone)} {zone_name(scene.now_ms, scene.zone)} "
    right = line(
        Span(f"  {words}", Role.WARNING if old else Role.TEXT), Span(f"  {at}", Role.LABEL)
    )
    name = BY_ID[scene.place].name.lower()
    left = line(Span(" specdeck", Role.TITLE), "  ", state, " ", Span(name, Role.VALUE))
    return spread(left, right, cells, glyphs)


def reading(scene: Scene) -> tuple[LinkState, float | None, bool]:
    """How what the screen shows was read: the link, its age in seconds, and whether it is old."""
    needs = BY_ID[scene.place].needs
    looked: Looked[object] = scene.looked.of(Need.FLEET)
    every_s = EVERY_S[Need.FLEET] if Need.FLEET in needs else FLEET_ASIDE_S
    if Need.FLEET not in needs and needs:
        need = min(needs)
        looked, every_s = scene.looked.of(need), EVERY_S[need]
    if looked.at_ms is None:
        return (LinkState.LOST if looked.trouble else LinkState.CONNECTING), None, True
    age_s = max(scene.now_ms - looked.at_ms, 0) / 1000
    old = age_s > max(STALE_READS * every_s, STALE_LEAST_S)
    return (LinkState.LOST if looked.trouble else LinkState.LIVE), age_s, old


def fleet_notices(scene: Scene, size: int) -> tuple[Line, ...]:
    """What concerns the whole control plane, worst first."""
    found: list[tuple[str, Role]] = []
    if scene.frozen:
        behind = seconds(scene.behind_ms / 1000)
        at = clock(scene.now_ms, scene.zone)
        found.append((f"frozen at {at}, {behind} behind, p goes on", Role.BANNER))
    if scene.looked.fleet.trouble:
        found.append((f"control plane lost: {scene.looked.fleet.trouble}", Role.ALARM))
    late = [ask for ask in scene.asks if scene.now_ms - ask.at_ms >= SHOWN_AFTER_MS]
    if len(late) > 1:
        words = f"{len(late)} engines have not confirmed yet: {late[0].words}"
        found.append((words, Role.WARNING))
    elif late:
        found.append((waiting_words(late[0], None, scene.now_ms), Role.WARNING))
    if scene.readonly:
        found.append((scene.readonly, Role.LABEL))
    mark = scene.glyphs.alarm
    rows = [
        (f" {mark if place == 0 else ' '} {part}", role)
        for text, role in found
        for place, part in enumerate(wrap(text, max(size - 4, 20)) or [""])
    ][:NOTICES]
    return tuple(pad((Span(cut(text, size, scene.glyphs), role),), size) for text, role in rows)
