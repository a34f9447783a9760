"""The policy's thresholds with the present values beside them, and its history.  Pure."""

from __future__ import annotations

from console.board import load
from console.card import last_tier
from console.drafting import differences
from console.formatting import MISSING, cut, fill, moment, number, seconds
from console.scene import Scene, freshness, tier_sign
from console.spans import Line, Role, Span, line, pad, recolour, rule
from console.trend import progress
from store.policies import Careful, FixedPolicy, GoodputPolicy, HysteresisPolicy, PolicyConfig
from store.records import Tick

LOAD_BAR = 10
PAIR = 20
"""Cells of a pair of tiers."""


def lines(scene: Scene, size: int) -> tuple[Line, ...]:
    """The thresholds in force, one row per boundary and guard."""
    config = scene.board.policy
    if config is None:
        head = rule((Span("thresholds", Role.TITLE),), (), size, scene.glyphs)
        text = "the control plane has not told this engine's policy"
        return head, pad(line(Span(f" {text}", Role.LABEL)), size, scene.glyphs)
    policy = config.policy
    rows: list[Line] = [_rule(scene, size, config)]
    if isinstance(policy, FixedPolicy):
        rows.append(line(Span(f" always {policy.tier}", Role.TEXT)))
    elif isinstance(policy, HysteresisPolicy):
        rows += _hysteresis(scene, policy)
    elif isinstance(policy, GoodputPolicy):
        rows += _goodput(scene, policy)
    else:
        rows += _any(policy)
    return tuple(pad(row, size, scene.glyphs) for row in rows)


def _rule(scene: Scene, size: int, config: PolicyConfig) -> Line:
    tick: Tick | None = scene.board.tick
    dot = f" {scene.glyphs.dot} "
    title = dot.join((config.policy.kind, f"v{config.version} by {config.author}", config.stance))
    note: Line = (Span("t edits, b rolls back", Role.LABEL),)
    if tick is not None and tick.policy_version < config.version:
        words = f"v{config.version} asked, v{tick.policy_version} runs"
        note = (Span(words, Role.WARNING),)
    return rule((Span(f"thresholds{dot}{title}", Role.TITLE),), note, size, scene.glyphs)


def _hysteresis(scene: Scene, policy: HysteresisPolicy) -> list[Line]:
    glyphs, sample = scene.glyphs, scene.board.sample
    running = None if sample is None else load(sample)
    stale = freshness(scene).stale
    runs = last_tier(scene)
    rows: list[Line] = []
    pairs = zip(policy.tiers, policy.tiers[1:], policy.boundaries, strict=False)
    for quiet, busy, boundary in pairs:
        mark = glyphs.cursor if runs in (quiet, busy) else " "
        sign, role = tier_sign(scene, busy)
        now = "" if running is None else f"now {number(running)}"
        bar = "" if running is None else progress(running, boundary.up_at, LOAD_BAR)
        pair = line(mark, f"{quiet} {glyphs.arrow} ", Span(f"{sign} {busy}", role))
        up = f"{glyphs.up}{boundary.up_at} for {seconds(policy.up_hold_s)}"
        down = f"{glyphs.down}{boundary.down_at} for {seconds(policy.down_hold_s)}"
        row = line(
            pad(pair, PAIR, glyphs),
            Span(f" {up:<13} {down:<12} req ", Role.VALUE),
            Span(f"{bar} {now}", Role.LABEL),
        )
        rows.append(recolour(row, Role.STALE) if stale else row)
    floors = ", ".join(
        f"{tier} {floor:.2f} tok" for tier, floor in policy.min_accept_length.items()
    )
    accept = None if sample is None else sample.accept_length
    held = f" for {seconds(policy.accept_hold_s)}" if floors else ""
    floor = ("accept floor", f"{floors or 'none'}{held}", f"{number(accept, 2)} tok")
    return [*rows, *_guards(scene, policy, floor)]


def _goodput(scene: Scene, policy: GoodputPolicy) -> list[Line]:
    limit = "none" if policy.tpot_ms is None else f"{policy.tpot_ms:g} ms per token at most"
    cost = f"{seconds(policy.switch_cost_s)} of decoding, spread over {seconds(policy.horizon_s)}"
    return _guards(
        scene,
        policy,
        ("another tier", f"{100 * policy.gain:g} % ahead for {seconds(policy.hold_s)}", ""),
        ("TPOT", limit, ""),
        ("a change", f"costs {cost}", ""),
    )


def _guards(scene: Scene, policy: Careful, *first: tuple[str, str, str]) -> list[Line]:
    """Rows of name, threshold and present value: ``first``, then those of every such policy."""
    sample, stale = scene.board.sample, freshness(scene).stale
    used = None if sample is None or sample.kv.used is None else 100 * sample.kv.used
    guard = f"off at {100 * policy.kv_high:g} %, back under {100 * policy.kv_low:g} %"
    rows: list[Line] = []
    for label, threshold, value in (
        *first,
        ("KV guard", guard, f"{number(used, 1)} %"),
        ("dwell", f"{seconds(policy.min_dwell_s)} at least", _held(scene)),
    ):
        row = line(
            Span(f" {label:<13}", Role.LABEL),
            Span(f"{threshold}  ", Role.VALUE),
            Span(f"now {value}" if value else "", Role.LABEL),
        )
        rows.append(recolour(row, Role.STALE) if stale else row)
    return rows


def _held(scene: Scene) -> str:
    tick = scene.board.tick
    return MISSING if tick is None or tick.tier_age_s is None else seconds(tick.tier_age_s)


def _any(policy: object) -> list[Line]:
    """A policy of another kind: its fields as they are."""
    dump = getattr(policy, "model_dump", dict)(mode="json")
    return [
        line(Span(f" {name.replace('_', ' '):<22}", Role.LABEL), str(value))
        for name, value in dump.items()
        if name != "kind"
    ]


def history(scene: Scene, size: int) -> tuple[Line, ...]:
    """Every version with author, reason and what it changed, newest first."""
    looked = scene.looked.policies
    versions = looked.value or ()
    note: Line = ()
    if looked.trouble:
        words = cut(f"not read: {looked.trouble}", max(size - 16, 8), scene.glyphs)
        note = (Span(words, Role.WARNING),)
    rows = [rule((Span("history", Role.TITLE),), note, size, scene.glyphs)]
    if not versions:
        text = "reading the versions" if looked.value is None else "no version yet"
        rows.append(line(Span(f" {text}", Role.LABEL)))
    for place, config in enumerate(versions):
        before = versions[place + 1] if place + 1 < len(versions) else None
        rows.append(_version(scene, size, config, before))
    return tuple(pad(row, size, scene.glyphs) for row in rows)


def _version(scene: Scene, size: int, config: PolicyConfig, before: PolicyConfig | None) -> Line:
    glyphs = scene.glyphs
    present = scene.board.policy
    mark = glyphs.cursor if present is not None and config.version == present.version else " "
    at = moment(config.created_utc_ms, scene.zone)
    changed: list[str] = []
    if before is not None:
        if before.stance is not config.stance:
            changed.append(f"{before.stance.value} {glyphs.arrow} {config.stance.value}")
        changed += differences(before.policy, config.policy, glyphs)
    what = "; ".join(changed) if changed else "first" if before is None else "unchanged"
    reason = f'"{config.reason}" ' if config.reason else ""
    text = f"{reason}{what}"
    head = f"{mark}v{config.version:<4}{at}  "
    author = fill(config.author, 10, glyphs)
    room = max(size - len(head) - 12, 0)
    return line(
        Span(head, Role.LABEL), Span(f"{author} ", Role.VALUE), Span(cut(text, room, glyphs))
    )
