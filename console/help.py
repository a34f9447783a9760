"""The help screen's text: keys as bound, live thresholds, the meaning of every sign.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from console.formatting import MISSING, seconds
from console.gauges import gauges
from console.header import all_notices
from console.scene import STALE_POLLS, Scene, strip_signs
from console.spans import BLANK, Line, Role, Span, line, rule
from store.policies import FixedPolicy, GoodputPolicy, HysteresisPolicy


def help_lines(scene: Scene, keys: Sequence[tuple[str, str, bool]], cells: int) -> tuple[Line, ...]:
    """Everything, in ``cells`` cells.

    Args:
        keys: (key, what it does, whether it works now), as bound.
    """
    rows: list[Line] = []
    notices = all_notices(scene)
    if notices:
        rows += _section(scene, "now", cells)
        for notice in notices:
            rows += _text(f"{scene.glyphs.alarm} {notice}", cells, Role.WARNING)
    rows += _section(scene, "keys", cells)
    for key, words, works in keys:
        note = "" if works else "  (not now)"
        roles = (Role.KEY, Role.TEXT) if works else (Role.STALE, Role.STALE)
        rows.append(line(Span(f" {key:<11}", roles[0]), Span(f"{words}{note}", roles[1])))
    rows += _section(scene, "thresholds in force", cells)
    for text in thresholds(scene):
        rows += _text(text, cells)
    rows += _section(scene, "ranges of the trends", cells)
    for gauge in gauges(scene):
        low, top = gauge.ends
        text = f"{gauge.label}: {low}{scene.glyphs.to}{top} {gauge.unit} {gauge.thresholds}"
        rows += _text(text.rstrip(), cells)
    rows += _section(scene, "signs", cells)
    for sign, meaning in signs(scene):
        parts = wrap(meaning, max(cells - 16, 10))
        rows += [
            line(Span(f" {sign if row == 0 else '':<13}", Role.VALUE), part)
            for row, part in enumerate(parts)
        ]
    return tuple(rows)


def _section(scene: Scene, title: str, cells: int) -> list[Line]:
    return [BLANK, rule((Span(title, Role.TITLE),), (), cells, scene.glyphs)]


def _text(text: str, cells: int, role: Role = Role.TEXT) -> list[Line]:
    return [line(" ", Span(part, role)) for part in wrap(text, max(cells - 2, 10))]


def thresholds(scene: Scene) -> tuple[str, ...]:
    """The policy's thresholds in sentences, with its version and author."""
    config = scene.board.policy
    if config is None:
        return ("the control plane has not told this engine's policy",)
    policy = config.policy
    head = f"{policy.kind} policy, version {config.version} by {config.author}, {config.stance}"
    if isinstance(policy, FixedPolicy):
        return (head, f"always {policy.tier}")
    found = [head]
    if isinstance(policy, GoodputPolicy):
        found.append(
            f"another tier is used when {100 * policy.gain:g} % more tok/s are expected of it for "
            f"{seconds(policy.hold_s)}, the cost of the change included"
        )
        if policy.tpot_ms is not None:
            found.append(f"a token of one request may take {policy.tpot_ms:g} ms at most")
        return (*found, *_kept_and_guarded(policy))
    pairs = zip(policy.tiers, policy.tiers[1:], policy.boundaries, strict=False)
    for quiet, busy, boundary in pairs:
        found.append(
            f"{quiet} {scene.glyphs.arrow} {busy} at {boundary.up_at} req or more for "
            f"{seconds(policy.up_hold_s)}, back at {boundary.down_at} req or fewer for "
            f"{seconds(policy.down_hold_s)} (running requests per DP replica)"
        )
    for tier, floor in policy.min_accept_length.items():
        found.append(
            f"{tier} is left below an accept length of {floor:.2f} tok for "
            f"{seconds(policy.accept_hold_s)}"
        )
    return (*found, *_kept_and_guarded(policy))


def _kept_and_guarded(policy: HysteresisPolicy | GoodputPolicy) -> tuple[str, str]:
    return (
        f"a confirmed tier is kept for {seconds(policy.min_dwell_s)} at least (dwell)",
        f"KV used {100 * policy.kv_high:g} % turns speculation off at once, "
        f"under {100 * policy.kv_low:g} % it may return",
    )


def signs(scene: Scene) -> tuple[tuple[str, str], ...]:
    """Every sign on the screen and what it means."""
    glyphs = scene.glyphs
    strip = ", ".join(f"{sign} {tier}" for tier, sign in strip_signs(scene.board.tiers).items())
    return (
        (f"{glyphs.on} ON", "speculating, the deepest tier"),
        (f"{glyphs.middle} ON", "speculating, a narrower tier"),
        (f"{glyphs.off} OFF", "the tier off: no drafts"),
        (glyphs.unknown, "no tier is confirmed: ranks differ, or none was seen"),
        (glyphs.alarm, "alarm or warning; in the thresholds: the value that turns guards on"),
        (f"{glyphs.down}n {glyphs.up}n", "comes back at n or fewer, goes busier at n or more"),
        ("[##---] 2/5s", "a condition that has held 2 of the 5 seconds it needs"),
        ("mode strip", strip or MISSING),
        (glyphs.nothing, "in the mode strip: no data; trends are blank there"),
        (
            f"{glyphs.bars[0]} to {glyphs.bars[-1]}",
            "from the bottom to the top of the printed range; mean of the column's seconds",
        ),
        (MISSING, "missing; never zero"),
        (
            "STALE",
            f"no fresh sample for {STALE_POLLS} poll periods "
            f"({seconds(STALE_POLLS * scene.board.poll_s)}): values are the last known ones",
        ),
        ("on/off/auto", "an override; 'auto' under next is what automation would do"),
    )
