"""The questions that every run with kills must answer, from the engine's notes and the store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine_patch.contract_words import SwitchReason
from store.db import Store
from store.records import Decision, Outcome, Override
from tests.controlplane_rig import ENGINE
from tests.fault_rig import Rig


@dataclass(frozen=True)
class Found:
    """What a run held, for its report."""

    commands: int
    switches: int
    decisions: int
    overrides: int


def check(rig: Rig) -> Found:
    """The questions that every run must answer, from the engine's notes and the store."""
    puts = [(line["boot"], line["put"]) for line in rig.lines() if "put" in line]
    orders = Counter((boot, put["epoch"], put["generation"]) for boot, put in puts)
    assert not [order for order, times in orders.items() if times > 1], "an order was used twice"
    for boot in rig.boots:
        mine = [(put["epoch"], put["generation"]) for of, put in puts if of == boot]
        assert mine == sorted(mine), f"orders of {boot} went back: {mine}"
    with Store.open(rig.database, read_only=True) as store:
        decisions = store.decisions(ENGINE, limit=1_000_000)
        switches = store.switches(ENGINE, limit=1_000_000)
        overrides = store.overrides(ENGINE)
        audit = store.audit(limit=1_000_000)
        assert store.check_audit().intact
        assert store.unreadable == 0
    _decisions_hold(rig, decisions)
    _switches_have_decisions(rig, decisions)
    for boot in rig.boots:
        kept = sorted(one.entry.seq for one in switches if one.boot_id == boot)
        assert kept == list(range(1, len(kept) + 1)), f"the journal of {boot} has holes: {kept}"
    assert len({one.boot_id for one in switches} - set(rig.boots)) == 0
    _overrides_hold(rig, overrides)
    done = Counter(entry.action for entry in audit)
    assert done["override.set"] == len(overrides)
    for kind, times in rig.person.acknowledged.items():
        assert times <= done[f"override.{kind}"] <= times + rig.person.lost + 1
    starts = [(one.at_utc_ms, one.action) for one in audit if one.action.startswith("service.")]
    assert done["service.start"] == rig.kills["deck"] + 1, (starts, rig.kills)
    assert done["service.stop"] == 1, starts
    return Found(len(puts), len(rig.entries()), len(decisions), len(overrides))


def _decisions_hold(rig: Rig, decisions: list[Decision]) -> None:
    """None is missing that was shown, none is there twice, none is left open."""
    by_seq = {one.seq: one for one in decisions}
    assert len(by_seq) == len(decisions)
    for seq, shown in rig.seen.items():
        assert seq in by_seq, f"lost: {shown}"
        fixed = ("id", "at_utc_ms", "from_tier", "to_tier", "reason", "author", "clauses")
        for name in fixed:
            assert getattr(by_seq[seq], name) == getattr(shown, name), (name, shown, by_seq[seq])
    open_ = [one for one in decisions if one.outcome is Outcome.REQUESTED]
    assert not open_, f"left open: {open_}; the newest is {decisions[0]}"


def _switches_have_decisions(rig: Rig, decisions: list[Decision]) -> None:
    """Every change that the engine made on a command was decided before, to that very tier.

    Or it undid a decision that was replaced while its command was under way: the sample showed the
    old tier still, so the order that kept it there was no decision of its own.
    """
    begun: dict[str, int] = {}
    for line in rig.lines():
        begun.setdefault(line["boot"], line["at"])
    for boot, entry, at in rig.entries():
        if entry.reason is not SwitchReason.COMMAND:
            continue
        order = (entry.epoch, entry.generation)
        earlier = [
            one
            for one in decisions
            if begun[boot] - 60_000 <= one.at_utc_ms <= at + 50
            and (one.epoch, one.generation) <= order
        ]
        led = [one for one in earlier if one.to_tier == entry.to_tier]
        undone = [
            one
            for one in earlier
            if one.outcome is Outcome.SUPERSEDED
            and (one.from_tier, one.to_tier) == (entry.to_tier, entry.from_tier)
        ]
        assert led or undone, f"no decision led to {entry} of {boot}: {earlier}"


def _overrides_hold(rig: Rig, overrides: list[Override]) -> None:
    """Each was set once and lasted until its end, unless a person ended it earlier."""
    reasons = Counter(one.reason for one in overrides)
    assert all(times == 1 for times in reasons.values()), reasons
    ids = sorted(one.id for one in overrides)
    for one in overrides:
        assert one.ended_utc_ms is not None, f"in force for ever: {one}"
        if one.ended_by == "expired":
            assert -60 <= one.ended_utc_ms - one.expires_utc_ms < 30_000, one
        elif one.ended_by.startswith("replaced by "):
            assert int(one.ended_by.removeprefix("replaced by ")) in ids
        else:
            assert one.ended_by == "released by alice", one
        granted = one.expires_utc_ms - one.created_utc_ms
        assert abs(granted - 1000 * one.granted_s) < 500, one
