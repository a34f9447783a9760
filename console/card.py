"""The mode card: what runs, whether the engine confirms it, why, and what comes next.  Pure."""

from __future__ import annotations

import math
from collections import Counter

from console.clauses import building, reasons, wanted
from console.formatting import clock, countdown, fit, seconds
from console.scene import (
    LinkState,
    Scene,
    elapsed_s,
    freshness,
    override_left_s,
    tier_sign,
    tier_word,
)
from console.spans import (
    BLANK,
    Line,
    Role,
    Span,
    boxed,
    crop,
    line,
    recolour,
    spread,
    width,
)
from console.trend import progress
from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF, TierName
from store.observations import PluginStatus, Sample
from store.policies import FixedPolicy, Stance
from store.records import Decision, Outcome, Outlook, Tick

OUTLOOKS = 2
"""Candidates shown on the card; the side panel shows all."""


def card(scene: Scene, size: int) -> tuple[Line, ...]:
    """The framed card, six lines of ``size`` cells."""
    inner = size - 4
    rows: tuple[Line, ...] = (
        mode_line(scene, inner),
        why_line(scene, inner),
        *next_lines(scene, inner),
    )
    if freshness(scene).stale:
        rows = tuple(recolour(row, Role.STALE) for row in rows)
    name = title(scene)
    # Six cells of the frame's own strokes and spaces; the mark of a simulation is never cut.
    return boxed(rows, name, corner(scene, inner - width(name) - 6), size, scene.glyphs)


def title(scene: Scene) -> Line:
    """``speculation``, and for good ``SIMULATED <table>`` where the times are not real."""
    mark = simulated(scene)
    return line(
        Span("speculation", Role.TITLE),
        line(f" {scene.glyphs.dot} ", Span(mark, Role.WARNING)) if mark else BLANK,
    )


def simulated(scene: Scene) -> str:
    """``SIMULATED <table>`` on an engine whose times are computed, else ""."""
    facts, sample = scene.board.facts, scene.board.sample
    is_simulated = facts is not None and facts.simulated
    if not is_simulated and (sample is None or sample.simulation_valid is None):
        return ""
    table = facts.simulation_table if facts is not None else None
    return f"SIMULATED {table}" if table else "SIMULATED"


def corner(scene: Scene, room: int) -> Line:
    """Who steers, in ``room`` cells: automation with its stance, or an override with its end."""
    tick = scene.board.tick
    if tick is None:
        return BLANK
    dot = f" {scene.glyphs.dot} "
    override, left = tick.override, override_left_s(scene)
    if override is not None and left is not None:
        # Rounded up: an empty bar means that it is over.
        bar = progress(math.ceil(8 * min(left / override.granted_s, 1)), 8, 8)
        rest = f"{countdown(left)} left"
        texts: tuple[str, ...] = (
            dot.join(("OVERRIDE", override.author, f"{rest} {bar}")),
            dot.join(("OVERRIDE", f"{rest} {bar}")),
            dot.join(("OVERRIDE", rest)),
        )
        return line(Span(fit(room, *texts, glyphs=scene.glyphs), Role.WARNING))
    if not scene.board.commandable:
        return line(Span(fit(room, "OBSERVING", glyphs=scene.glyphs), Role.WARNING))
    word = {Stance.ACTIVE: "AUTO", Stance.SHADOW: "SHADOW", Stance.PAUSED: "PAUSED"}[tick.stance]
    kind = "" if scene.board.policy is None else f"{scene.board.policy.policy.kind} "
    texts = (f"{word}{dot}{kind}v{tick.policy_version}", word)
    role = Role.TITLE if tick.stance is Stance.ACTIVE else Role.WARNING
    return line(Span(fit(room, *texts, glyphs=scene.glyphs), role))


def mode_line(scene: Scene, cells: int) -> Line:
    """``▲ ON s3k1d4  for 4m12s    engine confirms s3k1d4 on 2/2 ranks, generation 37``."""
    left = mode_words(scene)
    variants, role = confirmation(scene)
    room = cells - width(left) - 3
    return line(left, "   ", Span(fit(room, *variants, glyphs=scene.glyphs), role))


def mode_words(scene: Scene) -> Line:
    """The running tier with its shape, word and how long it has run."""
    board = scene.board
    if board.tick is None:
        return line(Span(f"{scene.glyphs.unknown} WAITING", Role.LABEL))
    fresh = freshness(scene)
    tier = last_tier(scene)
    sign, role = tier_sign(scene, tier)
    words = line(Span(f"{sign} {tier_word(tier)}", role))
    if tier == OFF and off_kind(scene) is OffKind.ONE_TOKEN_VERIFY:
        words = line(words, Span(" (one-token verify)", Role.OFF))
    if board.sample is None:
        return words
    if fresh.stale:
        return line("last known ", words)
    if board.tick.tier_age_s is None:
        return words
    return line(words, f"  for {seconds(board.tick.tier_age_s + elapsed_s(scene))}")


def last_tier(scene: Scene) -> TierName | None:
    """The tier the newest sample confirmed."""
    tick = scene.board.sampled
    return None if tick is None else tick.confirmed


def off_kind(scene: Scene) -> OffKind | None:
    """How this engine runs ``off``."""
    return None if scene.board.facts is None else scene.board.facts.off_kind


def confirmation(scene: Scene) -> tuple[tuple[str, ...], Role]:
    """What the engine says about the tier, longest wording first: desired against confirmed."""
    board, tick = scene.board, scene.board.tick
    if tick is None:
        if scene.link.state is LinkState.LIVE:
            return ("no poll of this engine has ended yet",), Role.LABEL
        return ("no data from the control plane yet",), Role.LABEL
    facts = board.facts
    if facts is not None and facts.plugin is not PluginStatus.PRESENT:
        said = facts.plugin_message
        word = f"plugin {facts.plugin.value}"
        return (f"{word}: {said}" if said else f"{word}: observed only", word), Role.WARNING
    sample = board.sample
    if sample is None:
        return ("nothing was read from the engine yet",), Role.WARNING
    if board.gap is not None or freshness(scene).stale:
        at = clock(sample.at_utc_ms, scene.zone)
        return (f"not confirmed since {at}", f"since {at}"), Role.WARNING
    if tick.pending is not None:
        waited = max(scene.now_ms - tick.pending.at_utc_ms, 0) / 1000
        return _unsettled(tick, sample, tick.pending.to_tier, f", {seconds(waited)}")
    if tick.desired not in (None, tick.confirmed) and tick.stance is Stance.ACTIVE:
        return _unsettled(tick, sample, tick.desired, "")
    would = shadow_tier(scene)
    if would is not None and tick.confirmed is not None and would != tick.confirmed:
        texts = _settled(tick, sample)[0]
        wish = f"automation would run {would}"
        return (*(f"{text}; {wish}" for text in texts[1:]), wish), Role.WARNING
    return _settled(tick, sample)


def shadow_tier(scene: Scene) -> TierName | None:
    """The tier that automation in shadow would run, by its newest decision."""
    tick = scene.board.tick
    if tick is None or tick.stance is not Stance.SHADOW or tick.override is not None:
        return None
    for entry in scene.board.log:
        if isinstance(entry.event, Decision):
            return entry.event.to_tier if entry.event.outcome is Outcome.SHADOW else None
    return None


def _unsettled(
    tick: Tick, sample: Sample, asked: TierName | None, waited: str
) -> tuple[tuple[str, ...], Role]:
    still = f"engine still {tick.confirmed}" if tick.confirmed else _ranks(sample)
    return (f"asked {asked}, {still}{waited}", f"asked {asked}{waited}"), Role.WARNING


def _settled(tick: Tick, sample: Sample) -> tuple[tuple[str, ...], Role]:
    if tick.confirmed is None:
        return (_ranks(sample),), Role.ALARM if _torn(sample) else Role.WARNING
    ranks = len(sample.applied)
    agree = sum(rank.tier == tick.confirmed for rank in sample.applied)
    unseen = sum(rank.tier is None for rank in sample.applied)
    note = f", {unseen} not observed" if unseen else ""
    on = f"{agree}/{ranks} ranks{note}" if ranks else "no rank observed"
    return (
        f"engine confirms {tick.confirmed} on {on}, generation {sample.generation}",
        f"confirmed on {on}, generation {sample.generation}",
        f"confirmed on {on}",
        on,
    ), Role.TEXT


def _tiers_seen(sample: Sample) -> Counter[str]:
    return Counter(rank.tier for rank in sample.applied if rank.tier is not None)


def _torn(sample: Sample) -> bool:
    """Whether the ranks of one replica differ: a fault, which replicas that differ are not."""
    seen = {(rank.dp_rank, rank.tier) for rank in sample.applied if rank.tier is not None}
    return len(seen) > len({dp_rank for dp_rank, _ in seen})


def _ranks(sample: Sample) -> str:
    """``ranks differ: s3k1d4 on 1, off on 1``, or what all of them run, or that none was seen."""
    seen = _tiers_seen(sample)
    if not seen:
        return "no rank observed"
    if len(seen) == 1:
        (tier, count), *_ = seen.items()
        return f"{count}/{len(sample.applied)} ranks run {tier}, not confirmed yet"
    who = "ranks" if _torn(sample) else "replicas"
    return f"{who} differ: " + ", ".join(f"{tier} on {count}" for tier, count in seen.items())


def why_line(scene: Scene, cells: int) -> Line:
    """``why   concurrency 12 < 16 req held 5.0s · accept length 3.42 ≥ 2.60 tok``."""
    return line(Span("why   ", Role.LABEL), fit(cells - 6, *why(scene), glyphs=scene.glyphs))


def why(scene: Scene) -> tuple[str, ...]:
    """The verdict's reason, clauses first, then the policy's own sentence."""
    tick = scene.board.tick
    if tick is None:
        return ("-",)
    texts = reasons(tick.verdict.clauses, scene.glyphs)
    if tick.verdict.text:
        texts = (*texts, tick.verdict.text)
    return texts or (tick.verdict.reason.value.replace("_", " "),)


def next_lines(scene: Scene, cells: int) -> tuple[Line, ...]:
    """Two lines with what the nearest other tiers still need."""
    tick = scene.board.tick
    label = Span("next  ", Role.LABEL)
    if tick is None:
        return (line(label, "-"), BLANK)
    outlook = tick.verdict.outlook
    if tick.override is not None:
        label = Span("auto  ", Role.LABEL)
    if not outlook:
        return (line(label, crop(line(no_outlook(scene)), cells - 6, scene.glyphs)), BLANK)
    shown = list(outlook[:OUTLOOKS])
    rows = [outlook_line(scene, candidate, cells - 6) for candidate in shown]
    rows += [BLANK] * (OUTLOOKS - len(rows))
    return tuple(line(label if row == 0 else "      ", text) for row, text in enumerate(rows))


def no_outlook(scene: Scene) -> str:
    """Why there is nothing to wait for."""
    tick, policy = scene.board.tick, scene.board.policy
    if tick is not None and tick.override is not None:
        return "decides again when the override ends"
    if tick is not None and tick.stance is Stance.PAUSED:
        return "nothing: automation is paused"
    if not scene.board.commandable:
        return "nothing: this engine is observed, not commanded"
    if policy is not None and isinstance(policy.policy, FixedPolicy):
        return f"nothing: the policy is fixed on {policy.policy.tier}"
    return "-"


def outlook_line(scene: Scene, outlook: Outlook, cells: int) -> Line:
    """``■ s1k1d2  when concurrency ≥ 24 req for 5.0s   [####------] 1.9/5.0s``."""
    sign, role = tier_sign(scene, outlook.tier)
    if scene.board.tick is not None and scene.board.tick.override is not None:
        # What stands in automation's way is the override, as the card says already.
        outlook = outlook.model_copy(update={"blocked": ""})
    text = building(outlook, with_bar=cells >= 60)
    right = Span(text, Role.WARNING if outlook.blocked else Role.VALUE)
    head = line(Span(f"{sign} {outlook.tier:<7}", role), " when ")
    room = cells - width(head) - width((right,)) - 2
    text = fit(room, *wanted(outlook, scene.glyphs), glyphs=scene.glyphs)
    return spread(line(head, text), (right,), cells, scene.glyphs)
