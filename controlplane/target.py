"""What the control plane wants an engine to do, and whether an engine does it.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine_patch.contract_words import Mode
from engine_patch.tier import OFF, Thresholds
from store.observations import Sample
from store.records import Clause, Reason


@dataclass(frozen=True, slots=True)
class Target:
    """A mode and tier asked for, with the reason and who asked.

    Args:
        tier: None in mode ``auto``, and in mode ``on`` for "the last speculating tier".
        record_tier: the tier a decision's record names.
        said: the same for people.
        lease_ms: the lease the command gets.
        exact: the lease must end when ``lease_ms`` says (an override), else it is renewed.
        key: identity of the order behind it: the override's id and creation, or None.
        settled: nothing more needs to be sent (the end of an override is near).
        thresholds: what the engine applies in mode ``auto``, now or when the lease ends; None keeps
            those it has.
    """

    mode: Mode
    tier: str | None
    record_tier: str
    said: str
    reason: Reason
    text: str
    author: str
    lease_ms: int
    clauses: tuple[Clause, ...] = ()
    exact: bool = False
    key: tuple[int, int] | None = None
    settled: bool = False
    thresholds: Thresholds | None = None

    def asks(self, other: Target) -> bool:
        """Whether both ask the engine for the same thing in the same order's name."""
        if (self.mode, self.tier, self.key) != (other.mode, other.tier, other.key):
            return False
        return self.mode is not Mode.AUTO or self.thresholds == other.thresholds


def for_tier(tier: str) -> tuple[Mode, str | None]:
    """Mode and tier of a command that asks for ``tier``."""
    return (Mode.OFF, None) if tier == OFF else (Mode.ON, tier)


def obeyed(target: Target, sample: Sample) -> bool:
    """Whether every observed rank does what ``target`` asks; ``desired`` is no proof."""
    match target.mode:
        case Mode.AUTO:
            wanted = target.thresholds
            return sample.mode is Mode.AUTO and wanted in (None, sample.thresholds)
        case Mode.OFF:
            return sample.engine_tier == OFF
        case Mode.ON:
            if target.tier is not None:
                return sample.engine_tier == target.tier
            return sample.mode is Mode.ON and sample.engine_tier not in (None, OFF)


def in_force(target: Target, sample: Sample) -> bool:
    """Whether the engine's command in force asks for the same."""
    if sample.mode is not target.mode:
        return False
    return target.mode is not Mode.ON or target.tier in (None, sample.desired_tier)


def replicas_disagree(sample: Sample) -> tuple[str, ...]:
    """The replicas whose own TP ranks report different tiers, in words; empty if none does.

    A rank that is not observed says nothing either way.
    """
    if sample.engine_tier is not None:
        return ()
    tiers: dict[int, dict[str, list[int]]] = {}
    for rank in sample.applied:
        if rank.tier is not None:
            tiers.setdefault(rank.dp_rank, {}).setdefault(rank.tier, []).append(rank.tp_rank)
    return tuple(
        f"replica {dp}: "
        + ", ".join(
            f"{tier} on rank {', '.join(map(str, ranks))}" for tier, ranks in sorted(by.items())
        )
        for dp, by in sorted(tiers.items())
        if len(by) > 1
    )


def reported(sample: Sample) -> str:
    """What the ranks report, in words, for a message."""
    if sample.engine_tier is not None:
        return f"every observed rank reports {sample.engine_tier}"
    seen = [rank for rank in sample.applied if rank.tier is not None]
    if not seen:
        return "no rank reports its tier"
    return "ranks report " + ", ".join(
        f"{rank.tier} ({rank.dp_rank}.{rank.tp_rank})" for rank in seen
    )
