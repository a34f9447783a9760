"""The engine's own switches in mode ``auto``, asked of the engine's pure policy again.  Pure.

A poll does not see every decode batch, so a replay cannot say whether the engine should have
switched elsewhere.  But a journal entry holds the batch and the accept length that led to it: from
the same tier, would the same ``Chooser`` have gone to the same one?
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine_patch.chooser import FLOOR_REQUESTS, Chooser
from engine_patch.contract import JournalEntry
from engine_patch.contract_words import Mode, SwitchReason
from engine_patch.tier import Thresholds, TierName
from engine_patch.wire import RankCommand
from store.records import EngineSwitch

_BY_ITSELF = (SwitchReason.BATCH_UP, SwitchReason.BATCH_DOWN, SwitchReason.ACCEPT_FLOOR)


class SwitchCheck(StrEnum):
    """What a replay makes of one engine switch."""

    SAME = "same"
    DIFFERS = "differs"
    AS_RECORDED = "as_recorded"
    """Shown as recorded: its inputs are not in the recording."""


@dataclass(frozen=True, slots=True)
class CheckedSwitch:
    """One engine switch and what the replay says of it."""

    switch: EngineSwitch
    check: SwitchCheck
    text: str


def check_switches(
    switches: Sequence[EngineSwitch], thresholds: Iterable[tuple[int, Thresholds | None]]
) -> list[CheckedSwitch]:
    """Ask the chooser about each switch.

    Args:
        switches: in the order they were seen.
        thresholds: (time of the sample, thresholds in force) as the samples report them, in order.
    """
    known = list(thresholds)
    found: list[CheckedSwitch] = []
    before: dict[tuple[str, int], JournalEntry] = {}
    at = 0
    for switch in switches:
        while at + 1 < len(known) and known[at + 1][0] <= switch.seen_utc_ms:
            at += 1
        rank = (switch.boot_id, switch.entry.dp_rank)
        order = known[at][1] if known else None
        found.append(_check(switch, order, before.get(rank)))
        before[rank] = switch.entry
    return found


def _check(
    switch: EngineSwitch, order: Thresholds | None, before: JournalEntry | None
) -> CheckedSwitch:
    entry = switch.entry
    if entry.reason not in _BY_ITSELF:
        return CheckedSwitch(switch, SwitchCheck.AS_RECORDED, f"a {entry.reason.value}")
    if order is None or entry.from_tier not in order.tiers:
        return CheckedSwitch(switch, SwitchCheck.AS_RECORDED, "its thresholds are not recorded")
    follows = before is not None and before.seq == entry.seq - 1 and before.reason in _BY_ITSELF
    if before is not None and follows and entry.step - before.step < order.min_dwell_steps:
        steps = entry.step - before.step
        text = f"{steps} steps after the last switch, dwell is {order.min_dwell_steps}"
        return CheckedSwitch(switch, SwitchCheck.DIFFERS, text)
    if entry.reason is SwitchReason.ACCEPT_FLOOR and entry.accept_length is None:
        return CheckedSwitch(switch, SwitchCheck.AS_RECORDED, "its accept length is not recorded")
    tier = chosen(order, entry)
    if tier == entry.to_tier:
        return CheckedSwitch(switch, SwitchCheck.SAME, f"batch {entry.batch}: {tier}")
    return CheckedSwitch(
        switch,
        SwitchCheck.DIFFERS,
        f"batch {entry.batch}: recorded {entry.to_tier}, replayed {tier}",
    )


def chosen(order: Thresholds, entry: JournalEntry) -> TierName:
    """The tier that the chooser picks for the entry's batch, from its tier, with dwell over."""
    chooser = Chooser(order.tiers, entry.from_tier)
    chooser.command(RankCommand(mode=Mode.AUTO, thresholds=order))
    if entry.reason is SwitchReason.ACCEPT_FLOOR and entry.accept_length is not None:
        requests = 1000 * FLOOR_REQUESTS
        accepted = round((entry.accept_length - 1) * requests)
        whole, rest = divmod(accepted, requests)
        chooser.verified(entry.from_tier, [whole + 1] * rest + [whole] * (requests - rest))
    return chooser.next_tier(max(entry.batch, 1)) if entry.batch else chooser.settle_idle()
