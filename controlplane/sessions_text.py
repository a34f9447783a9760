"""Answers about recordings as text for a terminal.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.replay_messages import Verification
from controlplane.sessions_compare import Comparison, Mean
from controlplane.whatif_estimate import Estimate
from controlplane.whatif_grid import GridAnswer, Score
from controlplane.whatif_messages import Side, WhatIf


def verification_text(found: Verification) -> str:
    """What a verification found."""
    return "\n".join(_verification(found))


def _verification(found: Verification) -> Iterable[str]:
    word = "identical" if found.identical else "DIFFERENT"
    yield f"{word}: {found.verified} of {found.ticks} verdicts verified, {found.differing} differ"
    for span in found.not_verifiable:
        yield (
            f"not verifiable: {span.ticks} ticks, observations {span.first_seq} to "
            f"{span.last_seq}: {span.why}"
        )
    for one in found.differences:
        yield f"observation {one.seq} {one.field}:"
        yield f"  recorded {one.recorded}"
        yield f"  replayed {one.replayed}"
    if found.unreadable:
        yield f"{found.unreadable} damaged rows were skipped"
    switches = found.switches_same + found.switches_as_recorded + len(found.switches_differing)
    if switches:
        yield (
            f"engine switches: {found.switches_same} given again by the engine's policy, "
            f"{found.switches_as_recorded} as recorded, {len(found.switches_differing)} differ"
        )
    yield from (f"  {text}" for text in found.switches_differing)


def what_if_text(name: str, found: WhatIf) -> str:
    """What another policy would have done."""
    return "\n".join(_what_if(name, found))


def _what_if(name: str, found: WhatIf) -> Iterable[str]:
    yield f"{name}: {found.samples} samples, {found.seconds:.0f} s, load {found.load.value}"
    yield f"{'':22}{'recorded':>22}{'what-if':>22}"
    yield f"{'switches':22}{found.recorded.switches:>22}{found.what_if.switches:>22}"
    for tier in sorted(found.recorded.seconds_in.keys() | found.what_if.seconds_in.keys()):
        label = f"time in {tier}"
        yield f"{label:22}{_share(found.recorded, tier):>22}{_share(found.what_if, tier):>22}"
    measured = found.recorded_covered_tok_s
    recorded = "-" if measured is None else f"{measured:.0f} measured"
    yield f"{'tok/s where covered':22}{recorded:>22}{_rate(found.what_if.estimate):>22}"
    yield (
        f"{'regret to the oracle':22}{_percent(found.recorded.regret):>22}"
        f"{_percent(found.what_if.regret):>22}"
    )
    if found.first_difference is None:
        yield "the two never part"
    else:
        yield (
            f"first difference at observation {found.first_difference}, "
            f"{len(found.differences)} in all"
        )
    yield from (f"cannot know: {text}" for text in found.cannot_know)


def _share(side: Side, tier: str) -> str:
    whole = sum(side.seconds_in.values())
    return f"{side.seconds_in.get(tier, 0.0) / whole:.1%}" if whole else "-"


def _rate(one: Estimate) -> str:
    if one.tok_s is None or one.low is None or one.high is None:
        return "-"
    return f"{one.tok_s:.0f} ({one.low:.0f}-{one.high:.0f}) est."


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def grid_text(found: GridAnswer) -> str:
    """What a grid found."""
    lines = [f"{found.points} points tried, {found.left_out} contradict themselves"]
    if found.cancelled:
        lines.append("cancelled: the best so far")
    lines.append(f"best: {' '.join(found.best.edits)}")
    lines.append(_score("chosen on", found.sessions, found.best, found.recorded))
    if found.held_out is not None and found.recorded_held_out is not None:
        lines.append(
            _score("held out", found.sessions_held_out, found.held_out, found.recorded_held_out)
        )
    return "\n".join(lines)


def _score(word: str, sessions: tuple[str, ...], one: Score, recorded: Score) -> str:
    return (
        f"{word} {len(sessions)} sessions: regret {one.regret:.1%} (recorded policy "
        f"{recorded.regret:.1%}), {one.switches} switches (recorded {recorded.switches}), "
        f"table covers {one.coverage:.0%}"
    )


def comparison_text(found: Comparison) -> str:
    """Two sessions side by side."""
    lines = [f"warning: {text}" for text in found.warnings]
    lines.append(f"{'tier':10}{'batch':>7} {'unit':6}{found.names[0]:>26}{found.names[1]:>26}")
    for row in found.rows:
        batch = str(row.bucket) if row.bucket else "any"
        mark = {True: "  differs", False: "", None: "  ?"}[row.differs]
        left, right = _mean(row.one), _mean(row.other)
        lines.append(f"{row.tier:10}{batch:>7} {row.unit:6}{left:>26}{right:>26}{mark}")
    rates = ["-" if one is None else f"{one:.1f}" for one in found.switches_per_hour]
    lines.append(f"{'switches per hour':24}{rates[0]:>26}{rates[1]:>26}")
    return "\n".join(lines)


def _mean(one: Mean | None) -> str:
    if one is None:
        return "-"
    if one.low is None or one.high is None:
        return f"{one.value:.4g} ({one.blocks} blocks)"
    return f"{one.value:.4g} ({one.low:.4g}-{one.high:.4g})"
