"""The side panel of a wide terminal: all clauses, all candidates, the engine and its KV.  Pure."""

from __future__ import annotations

from textwrap import wrap

from console.card import no_outlook, off_kind, why
from console.clauses import building, reason_clause, wanted_clause
from console.formatting import MISSING, number
from console.scene import Scene, freshness, tier_sign
from console.spans import BLANK, Line, Role, Span, line, pad, recolour, rule
from store.observations import EngineFacts, KvNumbers


def panel(scene: Scene, cells: int, height: int) -> tuple[Line, ...]:
    """The panel in ``cells`` by ``height``; what does not fit is left out from the end."""
    inner = max(cells - 2, 10)
    rows: list[Line] = []
    for title, body in (
        ("why", _why(scene, inner)),
        ("next", _next(scene, inner)),
        ("KV slots", _kv(scene, inner)),
        ("engine", _engine(scene, inner)),
        ("tiers", _tiers(scene)),
    ):
        if body:
            rows += [rule((Span(title, Role.TITLE),), (), cells, scene.glyphs), *body]
    if len(rows) > height:
        rows = rows[:height]
        rows[-1] = line(Span(f" {scene.glyphs.ellipsis} more on a taller screen", Role.LABEL))
    rows += [BLANK] * (height - len(rows))
    return tuple(pad(row, cells, scene.glyphs) for row in rows)


def _wrapped(text: str, cells: int, indent: str = "") -> list[Line]:
    parts = wrap(text, max(cells, 8), subsequent_indent=indent, break_long_words=True)
    return [line(f" {part}") for part in parts]


def _why(scene: Scene, cells: int) -> list[Line]:
    tick = scene.board.tick
    if tick is None:
        return [line(f" {MISSING}")]
    rows = _wrapped(tick.verdict.text or why(scene)[0], cells)
    for clause in tick.verdict.clauses:
        mark = "+" if clause.met else "-"
        rows += _wrapped(f"{mark} {reason_clause(clause, scene.glyphs)}", cells, "  ")
    return [recolour(row, Role.STALE) for row in rows] if freshness(scene).stale else rows


def _next(scene: Scene, cells: int) -> list[Line]:
    tick = scene.board.tick
    if tick is None:
        return []
    if not tick.verdict.outlook:
        return _wrapped(no_outlook(scene), cells)
    rows: list[Line] = []
    for outlook in tick.verdict.outlook:
        sign, role = tier_sign(scene, outlook.tier)
        reason = outlook.reason.value.replace("_", " ")
        named = Span(f"{sign} {outlook.tier}", role)
        rows.append(line(" ", named, Span(f"  {reason}", Role.LABEL)))
        for clause in outlook.clauses:
            mark = "+" if clause.met else "-"
            rows += _wrapped(f"  {mark} {wanted_clause(clause, scene.glyphs)}", cells, "    ")
        rows.append(line(Span(f"   {building(outlook, with_bar=cells >= 30)}", Role.VALUE)))
    return [recolour(row, Role.STALE) for row in rows] if freshness(scene).stale else rows


def _pair(label: str, value: str, cells: int) -> list[Line]:
    head = f" {label:<11}"
    parts = wrap(value, max(cells - 11, 8), break_long_words=True) or [MISSING]
    return [
        line(Span(head if row == 0 else " " * len(head), Role.LABEL), part)
        for row, part in enumerate(parts)
    ]


def _kv(scene: Scene, cells: int) -> list[Line]:
    kv = KvNumbers() if scene.board.sample is None else scene.board.sample.kv
    rows: list[Line] = []
    for label, slots in (
        ("capacity", kv.capacity),
        ("committed", kv.committed),
        ("reserve", kv.reserve),
        ("evictable", kv.evictable),
    ):
        text = number(slots)
        if label == "capacity":
            text += " slots"
        elif slots is not None and kv.capacity:
            text = f"{text:<8} {100 * slots / kv.capacity:.1f}%"
        rows += _pair(label, text, cells)
    return [recolour(row, Role.STALE) for row in rows] if freshness(scene).stale else rows


def _engine(scene: Scene, cells: int) -> list[Line]:
    facts = scene.board.facts
    if facts is None:
        return _pair("facts", "not read yet", cells)
    return [row for label, value in facts_rows(scene, facts) for row in _pair(label, value, cells)]


def facts_rows(scene: Scene, facts: EngineFacts) -> list[tuple[str, str]]:
    """The engine's identity as (label, text) rows; what it does not tell is "-"."""
    identity, versions = facts.identity, facts.versions
    rows = [("url", scene.board.url or MISSING)]
    if versions is not None:
        rows.append(("engine", f"{versions.engine} {versions.engine_version}"))
        rows.append(("plugin", f"{versions.plugin_version}, {facts.plugin.value}"))
    else:
        rows.append(("plugin", f"{facts.plugin.value} {facts.plugin_message}".strip()))
    if identity is not None:
        cap = number(identity.max_running_requests)
        origin = f", {identity.cap_origin}" if identity.cap_origin else ""
        gpu = MISSING if identity.gpu is None else f"{identity.gpu_count} x {identity.gpu}"
        rows += [
            ("model", identity.model),
            ("draft", identity.draft_model or MISSING),
            ("GPU", gpu),
            ("TP / DP", f"{identity.tp_size} / {identity.dp_size}"),
            ("attention", identity.attention_backend or MISSING),
            ("cap", f"{cap} req{origin}"),
        ]
    return rows


def _tiers(scene: Scene) -> list[Line]:
    facts = scene.board.facts
    if facts is None:
        return []
    rows: list[Line] = []
    kind = off_kind(scene)
    for tier in facts.tiers:
        sign, role = tier_sign(scene, tier.name)
        if tier.num_steps == 0:
            note = "" if kind is None else kind.value.replace("_", " ")
        else:
            note = f"{2 * tier.alloc_len} slots/req"
        if tier.memory_bytes is not None:
            note = f"{note:<10}"
            note += f" {tier.memory_bytes / 2**20:.0f} MiB"
        rows.append(line(" ", Span(f"{sign} {tier.name:<9}", role), Span(note, Role.LABEL)))
    return rows
