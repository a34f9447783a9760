"""KV slots: what is committed, evictable and held back, per tier, and the cap.  Pure."""

from __future__ import annotations

from textwrap import wrap

from console.card import last_tier
from console.formatting import MISSING, number
from console.gauges import kv_guard
from console.scene import Scene, freshness, tier_sign
from console.spans import BLANK, Line, Role, Span, line, pad, recolour, rule
from controlplane.capabilities import cap_note
from engine_patch.contract import TierInfo
from engine_patch.tier import OFF
from store.observations import KvNumbers, Source

BAR, SHORT_BAR = 30, 12


def lines(scene: Scene, size: int) -> tuple[Line, ...]:
    """Slots, reserve per tier, cap."""
    rows = [*slots(scene, size), BLANK, *reserve(scene, size), BLANK, *cap(scene, size)]
    return tuple(pad(row, size, scene.glyphs) for row in rows)


def slots(scene: Scene, size: int) -> list[Line]:
    """The four numbers, and what is left."""
    sample = scene.board.sample
    kv = KvNumbers() if sample is None else sample.kv
    source = ""
    if sample is not None:
        patched = sample.source is Source.SPECULATION
        source = "GET /speculation" if patched else "/v1/loads, /metrics"
        source += f" {scene.glyphs.dot} {freshness(scene).words}"
    note: Line = (Span(source, Role.LABEL),) if source else ()
    rows: list[Line] = [rule((Span("KV slots", Role.TITLE),), note, size, scene.glyphs)]
    rows.append(_slot("capacity", kv.capacity, None, "slots over all replicas", size))
    unknown = "not told by this engine"
    rows.append(_slot("committed", kv.committed, kv.capacity, "held by running requests", size))
    rows.append(
        _slot(
            "reserve",
            kv.reserve,
            kv.capacity,
            unknown if kv.reserve is None else "held back for speculation",
            size,
        )
    )
    free = None
    if kv.capacity is not None and kv.committed is not None:
        free = max(kv.capacity - kv.committed - (kv.reserve or 0), 0)
    rows.append(_slot("left", free, kv.capacity, "capacity - committed - reserve", size))
    rows.append(
        _slot("evictable", kv.evictable, kv.capacity, "cached prefixes, apart from used", size)
    )
    used = None if kv.used is None else 100 * kv.used
    guard = kv_guard(scene)
    words = f"used {number(used, 1)} % = (committed + reserve) / capacity{guard}"
    rows.append(line(Span(f" {words}", Role.VALUE)))
    if freshness(scene).stale:
        rows = [rows[0], *(recolour(row, Role.STALE) for row in rows[1:])]
    return rows


def _slot(label: str, value: int | None, capacity: int | None, words: str, size: int) -> Line:
    cells = BAR if size >= 100 else SHORT_BAR
    share, bar = "", " " * (cells + 2)
    if value is not None and capacity:
        part = min(value / capacity, 1.0)
        filled = round(part * cells)
        # What is not nothing leaves a mark.
        filled = max(filled, 1) if value > 0 else 0
        bar = f"[{'#' * filled}{'-' * (cells - filled)}]"
        share = f"{100 * part:.1f} %"
    return line(
        Span(f" {label:<10}", Role.LABEL),
        Span(f"{number(value):>11} ", Role.VALUE),
        Span(f"{share:>7} ", Role.VALUE),
        Span(f"{bar} ", Role.TREND),
        Span(words, Role.LABEL),
    )


def reserve(scene: Scene, size: int) -> list[Line]:
    """What each tier would hold back at the present load, and what going there gives back."""
    sample, facts = scene.board.sample, scene.board.facts
    running = None if sample is None else sample.concurrency
    at = "" if running is None else f"at {number(running)} running req"
    note: Line = (Span(at, Role.LABEL),) if at else ()
    rows = [rule((Span("reserve per tier", Role.TITLE),), note, size, scene.glyphs)]
    tiers = () if facts is None else facts.tiers
    if not tiers:
        rows.append(line(Span(" the engine tells no tiers", Role.LABEL)))
        return rows
    by_name = {tier.name: tier for tier in tiers}
    ordered = [by_name[name] for name in scene.board.tiers if name in by_name]
    runs = by_name.get(last_tier(scene) or "")
    capacity = None if sample is None else sample.kv.capacity
    head = f" {'tier':<12}{'slots/req':>9}{'at this load':>14}{'of capacity':>12}   going there"
    rows.append(line(Span(head, Role.LABEL)))
    rows += [_tier(scene, tier, runs, running, capacity) for tier in ordered]
    off = by_name.get(OFF)
    if runs is not None and off is not None and running is not None and runs.name != OFF:
        back = running * (_each(runs) - _each(off))
        words = f"off gives back {number(back)} slots now"
        if capacity:
            words += f", {100 * back / capacity:.1f} % of capacity"
        rows.append(line(Span(f" {words}", Role.VALUE)))
    return (
        [rows[0], *(recolour(r, Role.STALE) for r in rows[1:])] if freshness(scene).stale else rows
    )


def _each(tier: TierInfo) -> int:
    """Slots held back per running request: twice its step's need (overlap)."""
    return 2 * tier.alloc_len


def _tier(
    scene: Scene,
    tier: TierInfo,
    runs: TierInfo | None,
    running: int | None,
    capacity: int | None,
) -> Line:
    sign, role = tier_sign(scene, tier.name)
    held = None if running is None else running * _each(tier)
    share = MISSING if held is None or not capacity else f"{100 * held / capacity:.2f} %"
    going = ""
    if runs is not None and running is not None:
        change = running * (_each(tier) - _each(runs))
        going = "runs now" if tier.name == runs.name else f"gives back {number(-change)}"
        if change > 0:
            going = f"needs {number(change)} more"
    mark = scene.glyphs.cursor if runs is not None and tier.name == runs.name else " "
    return line(
        mark,
        Span(f"{sign} {tier.name:<10}", role),
        Span(f"{_each(tier):>9}{number(held):>14}{share:>12}   ", Role.VALUE),
        Span(going, Role.LABEL),
    )


def cap(scene: Scene, size: int) -> list[Line]:
    """The cap on running requests and where it comes from."""
    facts = scene.board.facts
    rows = [rule((Span("cap on running requests", Role.TITLE),), (), size, scene.glyphs)]
    identity = None if facts is None else facts.identity
    if facts is None or identity is None:
        rows.append(line(Span(" the engine has not told it", Role.LABEL)))
        return rows
    effective = number(identity.max_running_requests)
    asked = number(identity.requested_max_running_requests)
    origin = identity.cap_origin or MISSING
    words = f"in effect {effective} req, asked for {asked}, origin {origin}"
    rows.append(line(Span(f" {words}", Role.VALUE)))
    note = cap_note(facts)
    if note:
        rows += [
            line(Span(f" {scene.glyphs.alarm if place == 0 else ' '} {part}", Role.WARNING))
            for place, part in enumerate(wrap(note, max(size - 4, 20)))
        ]
    return rows
