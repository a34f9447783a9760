"""The what-if pane and the pages that say everything about a what-if and a verification.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from console.drafting import differences
from console.formatting import MISSING, clock, number
from console.replay_board import ReplayBoard
from console.scene import Scene, tier_sign
from console.spans import BLANK, Line, Role, Span, line, pad, rule
from controlplane.replay_messages import Verification
from controlplane.whatif_estimate import Estimate
from controlplane.whatif_messages import Side, WhatIf
from store.policies import Policy

LABEL, VALUE = 22, 18
"""Widths of the table's columns in cells."""
NOT_COVERED = "not covered"
"""No number where no step-cost table has one; the sentences beside it say why."""
ROOMY = 11
"""Rows from which on the pane holds the table and what follows from it."""


def pane(scene: Scene, replay: ReplayBoard, size: int, height: int) -> tuple[Line, ...]:
    """The what-if in ``size`` cells by ``height``; what has no room is on its page."""
    found = replay.what_if
    if found is None or height <= 0:
        return ()
    head = rule(
        (Span("what if", Role.TITLE),),
        (Span("i all of it, w another, W clear", Role.LABEL),),
        size,
        scene.glyphs,
    )
    rows = [head, *(_table(scene, found) if height >= ROOMY else _short(scene, found, size))]
    rows += _sentences(scene, found, size)
    if len(rows) > height:
        hidden = len(rows) - height + 1
        rows = [*rows[: height - 1], line(Span(f" {hidden} more lines: i shows all", Role.LABEL))]
    rows += [BLANK] * (height - len(rows))
    return tuple(pad(row, size, scene.glyphs) for row in rows)


def page(scene: Scene, replay: ReplayBoard, size: int) -> tuple[Line, ...]:
    """Everything about the what-if."""
    found = replay.what_if
    if found is None:
        return (line(" nothing was asked yet"),)
    rows = [*_table(scene, found), BLANK]
    rows += _sentences(scene, found, size)
    rows += [BLANK, rule((Span("changes", Role.TITLE),), (), size, scene.glyphs)]
    for turn in found.what_if.turns:
        at = clock(turn.at_utc_ms, scene.zone)
        change = f"{turn.from_tier:<7} {scene.glyphs.arrow} {turn.to_tier:<7}"
        rows += _wrapped(f"{at}  {change} {turn.reason}", size, Role.TEXT)
    left_out = found.what_if.switches - len(found.what_if.turns)
    if left_out > 0:
        rows.append(line(Span(f" and {left_out} more", Role.LABEL)))
    return tuple(rows)


def _table(scene: Scene, found: WhatIf) -> list[Line]:
    one, other = found.recorded, found.what_if
    measured = found.recorded_covered_tok_s
    rows = [
        line(Span(f" {'':<{LABEL}}{'recorded':<{VALUE}}what-if", Role.LABEL)),
        _row("switches", str(one.switches), str(other.switches)),
        _row(
            "tok/s where covered",
            MISSING if measured is None else f"{number(measured)} measured",
            rate_words(scene, other.estimate),
        ),
    ]
    for tier in _tiers_of(scene, found):
        sign, role = tier_sign(scene, tier)
        rows.append(
            line(
                Span(f" {sign} ", role),
                Span(f"{f'time in {tier}':<{LABEL - 2}}", Role.LABEL),
                Span(f"{_share(one, tier):<{VALUE}}{_share(other, tier)}", Role.VALUE),
            )
        )
    rows.append(_row("regret to the oracle", _percent(one.regret), _percent(other.regret)))
    return rows


def _short(scene: Scene, found: WhatIf, size: int) -> list[Line]:
    """The table in two or three rows."""
    one, other, glyphs = found.recorded, found.what_if, scene.glyphs
    measured = found.recorded_covered_tok_s
    parts = [f"switches {one.switches} {glyphs.arrow} {other.switches}"]
    parts += [
        f"{tier} {_share(one, tier, 0)} {glyphs.arrow} {_share(other, tier, 0)}"
        for tier in _tiers_of(scene, found)
    ]
    rate = rate_words(scene, other.estimate)
    known = [f"tok/s {MISSING if measured is None else number(measured)} {glyphs.arrow} {rate}"]
    known.append(f"regret {_percent(one.regret)} {glyphs.arrow} {_percent(other.regret)}")
    dot = f" {glyphs.dot} "
    return [
        row
        for text in (dot.join(parts), dot.join(known))
        for row in _wrapped(text, size, Role.VALUE)
    ]


def _tiers_of(scene: Scene, found: WhatIf) -> list[str]:
    """The tiers that either side ran, from quiet to busy."""
    ran = {*found.recorded.seconds_in, *found.what_if.seconds_in}
    return [tier for tier in dict.fromkeys((*scene.board.tiers, *sorted(ran))) if tier in ran]


def _row(label: str, recorded: str, asked: str) -> Line:
    return line(
        Span(f" {label:<{LABEL}}", Role.LABEL), Span(f"{recorded:<{VALUE}}{asked}", Role.VALUE)
    )


def rate_words(scene: Scene, one: Estimate) -> str:
    """``1 610 (1 470–1 750) est., covers 83 %``, or that no table knows it."""
    if one.tok_s is None or one.low is None or one.high is None:
        return NOT_COVERED
    bounds = f"{number(one.low)}{scene.glyphs.to}{number(one.high)}"
    return f"{number(one.tok_s)} ({bounds}) est., covers {100 * one.coverage:.0f} %"


def _share(side: Side, tier: str, decimals: int = 1) -> str:
    whole = sum(side.seconds_in.values())
    spent = side.seconds_in.get(tier, 0.0)
    return f"{100 * spent / whole:.{decimals}f} %" if whole else MISSING


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f} %"


def _sentences(scene: Scene, found: WhatIf, size: int) -> list[Line]:
    rows = _wrapped(first_difference(scene, found), size, Role.VALUE)
    rows += _wrapped(asked_words(scene, found), size, Role.TEXT)
    for text in found.cannot_know:
        rows += _wrapped(f"cannot know: {text}", size, Role.LABEL)
    return rows


def first_difference(scene: Scene, found: WhatIf) -> str:
    """Where the two part for the first time, and how often."""
    if found.first_difference is None:
        return "the two never part"
    tier = _tier_at(found.what_if, found.first_difference)
    recorded = _tier_at(found.recorded, found.first_difference)
    runs = f": recorded {recorded}, what-if {tier}" if tier and recorded else ""
    at = next(
        (
            f"{clock(turn.at_utc_ms, scene.zone)}, "
            for turn in (*found.recorded.turns, *found.what_if.turns)
            if turn.seq == found.first_difference
        ),
        "",
    )
    count = len(found.differences)
    return (
        f"first difference {at}observation {found.first_difference}{runs}; "
        f"{count} in all, n jumps to the next"
    )


def _tier_at(side: Side, seq: int) -> str | None:
    """The tier after the last listed change up to an observation."""
    if not side.switches and len(side.seconds_in) == 1:
        return next(iter(side.seconds_in))
    if side.turns and seq < side.turns[0].seq:
        return side.turns[0].from_tier
    if len(side.turns) != side.switches and side.turns and seq > side.turns[-1].seq:
        return None
    passed = [turn for turn in side.turns if turn.seq <= seq]
    return passed[-1].to_tier if passed else None


def asked_words(scene: Scene, found: WhatIf) -> str:
    """What was asked: the changes to the policy at the position, and the load."""
    config = scene.board.policy
    load = f"the load {'as recorded' if found.load.value == 'recorded' else 'by arrivals'}"
    if config is None:
        return f"asked with {load}"
    changed = changes(config.policy, found.policy.policy, scene)
    return f"asked: {', '.join(changed) or 'the recorded policy'}; {load}"


def changes(before: Policy, after: Policy, scene: Scene) -> tuple[str, ...]:
    """What another policy has otherwise."""
    return differences(before, after, scene.glyphs)


def verify_page(scene: Scene, found: Verification, size: int) -> tuple[Line, ...]:
    """Everything about a verification."""
    return tuple(_verify(scene, found, size))


def _verify(scene: Scene, found: Verification, size: int) -> Iterable[Line]:
    word, role = ("identical", Role.ON) if found.identical else ("DIFFERENT", Role.ALARM)
    yield line(Span(f" {word}", role))
    yield from _wrapped(
        f"{found.verified} of {found.ticks} verdicts verified, {found.differing} differ",
        size,
        Role.VALUE,
    )
    if found.unreadable:
        yield from _wrapped(f"{found.unreadable} damaged rows left out", size, Role.WARNING)
    if found.not_verifiable:
        yield from _section(scene, "not verifiable", size)
    for span in found.not_verifiable:
        ends = f"observation {span.first_seq}"
        if span.last_seq != span.first_seq:
            ends = f"observations {span.first_seq} to {span.last_seq}"
        yield from _wrapped(f"{ends}, {span.ticks} ticks: {span.why}", size, Role.TEXT)
    if found.differences:
        yield from _section(scene, "differences, n jumps to the next", size)
    for one in found.differences:
        yield from _wrapped(f"observation {one.seq}, {one.field}", size, Role.VALUE)
        yield from _wrapped(f"  recorded {one.recorded}", size, Role.TEXT)
        yield from _wrapped(f"  replayed {one.replayed}", size, Role.TEXT)
    if found.differing > len({one.seq for one in found.differences}):
        yield line(Span(" the first ones are listed", Role.LABEL))
    switches = found.switches_same + found.switches_as_recorded + len(found.switches_differing)
    if switches:
        yield from _section(scene, "engine switches", size)
        yield from _wrapped(
            f"{found.switches_same} given again by the engine's own policy, "
            f"{found.switches_as_recorded} shown as recorded (by command, at the end of a lease, "
            f"or without their inputs), {len(found.switches_differing)} differ",
            size,
            Role.TEXT,
        )
    for text in found.switches_differing:
        yield from _wrapped(text, size, Role.ALARM)


def _section(scene: Scene, title: str, size: int) -> Sequence[Line]:
    return (BLANK, rule((Span(title, Role.TITLE),), (), size, scene.glyphs))


def _wrapped(text: str, size: int, role: Role) -> list[Line]:
    indent = len(text) - len(text.lstrip())
    parts = wrap(text.strip(), max(size - 2 - indent, 10)) or [""]
    return [line(Span(" " * (1 + indent) + part, role)) for part in parts]
