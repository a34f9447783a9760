"""Obedience: bounded retries, alarms, disagreement, refusals, orders."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from engine_patch.contract_words import Mode, RefusalCode, SwitchReason
from engine_patch.tier import OFF
from store.observations import RankTier
from store.records import Outcome, OutcomeKind, Reason
from tests.controlplane_script import Script, config


def asked_off(script: Script) -> None:
    """Bring the script to the step that asks for off."""
    script.see(1)
    while not any(command.mode is Mode.OFF for command in script.commands):
        script.see(30)


def test_an_engine_that_says_yes_and_does_nothing_is_not_applied_after_its_retries() -> None:
    script = Script(config(command_timeout_s=2.0, retries=2), obeys=False)
    asked_off(script)
    script.answer()
    while script.state.obedience.pending is not None:
        tick = script.see(30)
    decision = tick.decisions[0]
    assert decision.outcome is Outcome.TIMED_OUT
    assert decision.attempts == 3
    assert decision.settled_utc_ms is not None
    assert decision.settled_utc_ms - decision.at_utc_ms == 6_000
    assert [alarm.code for alarm in tick.alarms] == ["not_applied"]
    assert "every observed rank reports s3k1d4" in tick.alarms[0].text
    assert tick.confirmed == "s3k1d4"


def test_what_was_not_applied_is_tried_again_at_growing_intervals() -> None:
    script = Script(config(command_timeout_s=1.0, retries=0), obeys=False)
    asked_off(script)
    for _ in range(600):
        script.see(30)
    tries = [d.at_utc_ms for _, d in sorted(script.decisions.items())]
    waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    # One second until it counts as not applied, then 2, 4, 8, ... seconds.
    assert waits[:6] == [3_000, 5_000, 9_000, 17_000, 33_000, 65_000]


def test_the_wait_is_told_while_it_lasts() -> None:
    script = Script(config(command_timeout_s=1.0, retries=0), obeys=False)
    asked_off(script)
    script.see(30)
    script.see(30)
    tick = script.see(30)
    assert tick.verdict.tier == OFF
    assert tick.verdict.text.endswith("not applied, next try in 1.5 s")


def test_a_late_confirmation_ends_the_alarm() -> None:
    script = Script(config(command_timeout_s=1.0, retries=0), obeys=False)
    asked_off(script)
    script.see(30)
    script.see(30)
    script.take(script.commands[-1])
    assert script.see(30).alarms == ()


def test_each_command_has_a_higher_order_than_the_one_before() -> None:
    script = Script(config(command_timeout_s=1.0, retries=3), obeys=False)
    asked_off(script)
    for _ in range(200):
        script.see(30)
    orders = [(command.epoch, command.generation) for command in script.commands]
    assert len(orders) > 10
    assert orders == sorted(set(orders))


# -- ranks that differ ------------------------------------------------------------------------


def split(*tiers: str | None) -> dict[str, Any]:
    ranks = tuple(RankTier(dp_rank=0, tp_rank=i, tier=tier) for i, tier in enumerate(tiers))
    return {"engine_tier": None, "applied": ranks}


def test_two_ranks_of_which_one_refuses_end_automation_for_the_engine() -> None:
    script = Script(config(command_timeout_s=2.0, retries=1), obeys=False)
    asked_off(script)
    for _ in range(20):
        tick = script.see(30, **split(OFF, "s3k1d4"))
    assert tick.confirmed is None
    assert tick.verdict.reason is Reason.DISAGREE
    assert {alarm.code for alarm in tick.alarms} == {"not_applied", "ranks_disagree"}
    assert "off on rank 0, s3k1d4 on rank 1" in next(
        alarm.text for alarm in tick.alarms if alarm.code == "ranks_disagree"
    )
    sent = len(script.commands)
    for _ in range(200):
        script.see(30, **split(OFF, "s3k1d4"))
    assert len(script.commands) == sent


def test_automation_goes_on_when_the_ranks_agree_again() -> None:
    script = Script()
    asked_off(script)
    script.see(30)
    for _ in range(20):
        script.see(30, **split(OFF, "s3k1d4"))
    tick = script.see(30)
    assert tick.alarms == ()
    assert tick.confirmed == OFF


def test_ranks_that_differ_for_a_moment_are_on_their_way() -> None:
    script = Script(obeys=False)
    asked_off(script)
    tick = script.see(30, **split(OFF, "s3k1d4"))
    assert (tick.confirmed, tick.alarms) == (None, ())
    script.take(script.commands[-1])
    assert script.see(30).decisions[0].outcome is Outcome.CONFIRMED


def test_a_rank_on_another_host_is_no_disagreement() -> None:
    script = Script()
    script.see(1)
    for _ in range(20):
        tick = script.see(1, **split("s3k1d4", None))
    assert all(alarm.code != "ranks_disagree" for alarm in tick.alarms)


def test_replicas_that_differ_are_not_applied_but_no_fault_of_the_ranks() -> None:
    script = Script(config(command_timeout_s=1.0, retries=0), obeys=False)
    asked_off(script)
    ranks = (
        RankTier(dp_rank=0, tp_rank=0, tier=OFF),
        RankTier(dp_rank=1, tp_rank=0, tier="s3k1d4"),
    )
    for _ in range(6):
        tick = script.see(30, engine_tier=None, applied=ranks)
    assert [alarm.code for alarm in tick.alarms] == ["not_applied"]
    assert "off (0.0), s3k1d4 (1.0)" in tick.alarms[0].text


# -- answers ----------------------------------------------------------------------------------


def test_an_accepted_command_is_not_confirmed_by_that() -> None:
    script = Script(obeys=False)
    asked_off(script)
    assert script.answer() is None
    tick = script.see(30)
    assert tick.confirmed == "s3k1d4"
    assert tick.pending is not None
    assert tick.pending.outcome is Outcome.REQUESTED


def test_a_stale_order_is_sent_again_above_the_engines_own() -> None:
    script = Script(obeys=False)
    asked_off(script)
    refused = script.answer(RefusalCode.STALE_ORDER, engine_epoch=2, engine_generation=90)
    assert refused is None
    script.see(30)
    assert (script.commands[-1].epoch, script.commands[-1].generation) == (2, 91)
    assert script.commands[-1].mode is Mode.OFF
    assert len(script.decisions) == 1


@pytest.mark.parametrize(
    ("code", "alarm"),
    [
        (RefusalCode.KV_SHORT, "command_refused"),
        (RefusalCode.FORBIDDEN, "command_refused"),
        (RefusalCode.UNKNOWN_TIER, "command_refused"),
        (RefusalCode.FOREIGN_CLAIM, "foreign_claim"),
    ],
)
def test_a_refusal_settles_the_decision_with_the_engines_words(
    code: RefusalCode, alarm: str
) -> None:
    script = Script(obeys=False)
    asked_off(script)
    decision = script.answer(code, message="needs 900 slots, 12 are free", held_by="cp-b")
    assert decision is not None
    assert decision.outcome is Outcome.REFUSED
    expected = "cp-b" if code is RefusalCode.FOREIGN_CLAIM else "needs 900 slots, 12 are free"
    assert expected in decision.message
    assert [raised.code for raised in script.state.obedience.alarms.raised] == [alarm]
    assert script.see(30).decisions == ()


@pytest.mark.parametrize("kind", [OutcomeKind.UNREACHABLE, OutcomeKind.REFUSED])
def test_an_answer_that_does_not_tell_waits_for_the_ranks(kind: OutcomeKind) -> None:
    script = Script(obeys=False)
    asked_off(script)
    code = "" if kind is OutcomeKind.UNREACHABLE else RefusalCode.TIMEOUT.value
    assert script.answer(code, kind=kind) is None
    script.take(script.commands[-1])
    assert script.see(30).decisions[0].outcome is Outcome.CONFIRMED


def test_an_answer_to_an_older_command_settles_nothing() -> None:
    script = Script(config(command_timeout_s=0.5), obeys=False)
    asked_off(script)
    older = script.commands[-1]
    script.see(30)
    assert script.commands[-1].generation > older.generation
    decision = script.answer(RefusalCode.KV_SHORT, generation=older.generation)
    assert decision is None
    assert script.state.obedience.pending is not None


def test_a_refused_renewal_is_not_repeated_at_every_step() -> None:
    script = Script(obeys=False)
    script.see(1)
    for _ in range(240):
        sent = len(script.commands)
        tick = script.see(1)
        if len(script.commands) > sent:
            script.answer(RefusalCode.FORBIDDEN, message="PUT needs the admin key")
    assert len(script.commands) < 12
    assert [alarm.code for alarm in tick.alarms] == ["command_refused"]


def test_an_engine_that_keeps_changing_by_itself_is_asked_ever_more_rarely() -> None:
    script = Script()
    script.see(1)
    script.see(1)
    for _ in range(240):
        script.move(OFF, SwitchReason.KV_SHORT)
        script.see(1)
    assert len(script.decisions) < 12


def test_long_after_its_last_failure_an_engine_is_forgiven() -> None:
    script = Script()
    script.see(1)
    script.see(1)
    for _ in range(20):
        script.move(OFF, SwitchReason.KV_SHORT)
        script.see(1)
    for _ in range(400):
        script.see(1)
    script.move(OFF, SwitchReason.KV_SHORT)
    assert script.see(1).decisions[0].to_tier == "s3k1d4"


def test_a_tier_that_comes_late_keeps_its_lease_though_the_next_try_was_far_off() -> None:
    script = Script(config(command_timeout_s=1.0, retries=0, lease_s=10.0), obeys=False)
    asked_off(script)
    for _ in range(140):
        script.see(30)
    script.take(script.commands[-1])
    script.obeys = True
    for _ in range(100):
        script.see(30)
    assert script.tier == OFF
    assert all(entry.reason is not SwitchReason.LEASE_END for entry in script.switches)


def test_the_end_of_a_lease_during_a_gap_is_repaired_with_one_command() -> None:
    script = Script(config(lease_s=10.0), launch="s3k1d4")
    asked_off(script)
    script.see(30)
    for _ in range(60):
        script.gap()
    sent = len(script.commands)
    tick = script.see(30)
    assert tick.decisions[0].to_tier == OFF
    assert len(script.commands) == sent + 1
    assert script.see(30).confirmed == OFF
    for _ in range(4):
        script.see(30)
    assert len(script.commands) == sent + 1
