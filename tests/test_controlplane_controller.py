"""One step of the controller: deciding, commanding, confirming, losing sight, restarting."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.controller import initial, step
from engine_patch.contract_words import Mode, OffKind, SwitchReason
from engine_patch.tier import OFF
from store.observations import KvNumbers, PluginStatus, RankTier
from store.policies import FixedPolicy, Stance
from store.records import Outcome, Reason
from tests.controlplane_script import ENGINE, Script, again, config, facts, two_tiers


def busy(script: Script, samples: int = 8, load: int = 30) -> None:
    for _ in range(samples):
        script.see(load)


# -- the loop ---------------------------------------------------------------------------------


def test_load_switches_off_and_back_with_one_confirmed_decision_each() -> None:
    script = Script()
    script.see(1)
    busy(script)
    for _ in range(24):
        script.see(2)
    assert script.switched == [("s3k1d4", OFF), (OFF, "s3k1d4")]
    reasons = [decision.reason for _, decision in sorted(script.decisions.items())]
    assert reasons == [Reason.LOAD_UP, Reason.LOAD_DOWN]


def test_a_decision_carries_its_clauses_and_the_order_it_was_sent_with() -> None:
    script = Script()
    script.see(1)
    busy(script, 5)
    decision = script.ticks[-1].decisions[0]
    assert decision.outcome is Outcome.REQUESTED
    assert decision.clauses[0].value == 30
    assert decision.clauses[0].threshold == 24
    assert decision.clauses[0].met is True
    assert (decision.epoch, decision.generation) == (0, script.commands[-1].generation)
    assert decision.seq == script.ticks[-1].observation.seq


def test_confirmed_is_what_the_ranks_report_and_latency_counts_from_the_request() -> None:
    script = Script(obeys=False)
    script.see(1)
    busy(script, 5)
    asked = script.ticks[-1]
    assert (asked.desired, asked.confirmed) == (OFF, "s3k1d4")
    assert script.see(30).confirmed == "s3k1d4"
    script.take(script.commands[-1])
    settled = script.see(30)
    assert settled.confirmed == OFF
    assert settled.decisions[0].outcome is Outcome.CONFIRMED
    assert settled.decisions[0].latency_ms == 1_000


def test_an_active_controller_takes_the_engine_over_without_calling_it_a_decision() -> None:
    script = Script()
    tick = script.see(1)
    assert [(c.mode, c.tier) for c in script.commands] == [(Mode.ON, "s3k1d4")]
    assert tick.decisions == ()


def test_the_lease_is_renewed_with_a_higher_generation_below_half() -> None:
    script = Script(config(lease_s=30.0))
    for _ in range(240):
        script.see(1)
    assert script.lease_ms is not None
    generations = [command.generation for command in script.commands]
    assert generations == sorted(set(generations))
    assert len(script.commands) == 8
    assert script.decisions == {}


def test_generations_go_on_from_the_engines_own_after_a_start_of_the_control_plane() -> None:
    script = Script(epoch=3, generation=41)
    script.see(1)
    assert (script.commands[0].epoch, script.commands[0].generation) == (3, 42)


def test_the_tier_age_counts_from_the_confirmation() -> None:
    script = Script()
    script.see(1)
    busy(script, 6)
    assert script.ticks[-1].tier_age_s == 0.0
    busy(script, 4)
    assert script.ticks[-1].tier_age_s == 2.0


def test_a_fixed_policy_puts_the_engine_on_its_tier() -> None:
    script = Script(config(FixedPolicy(tier=OFF)))
    for _ in range(6):
        tick = script.see(1)
    assert tick.confirmed == OFF
    assert script.switched == [("s3k1d4", OFF)]
    assert tick.verdict.reason is Reason.FIXED


# -- stance -----------------------------------------------------------------------------------


def test_shadow_records_what_it_would_do_and_sends_nothing() -> None:
    script = Script(config(stance=Stance.SHADOW))
    script.see(1)
    busy(script)
    for _ in range(24):
        script.see(2)
    assert script.commands == []
    assert script.outcomes() == [Outcome.SHADOW, Outcome.SHADOW]
    assert all(tick.desired is None for tick in script.ticks)


def test_paused_decides_nothing_and_says_so() -> None:
    script = Script(config(stance=Stance.PAUSED))
    busy(script, 20)
    assert script.commands == []
    assert script.decisions == {}
    assert script.ticks[-1].verdict.reason is Reason.PAUSED


def test_going_active_takes_up_what_the_policy_has_wanted_in_shadow() -> None:
    script = Script(config(stance=Stance.SHADOW))
    script.see(1)
    busy(script)
    script.stance(Stance.ACTIVE)
    tick = script.see(30)
    assert tick.decisions[0].to_tier == OFF
    assert script.commands[-1].mode is Mode.OFF


def test_going_to_shadow_drops_a_decision_on_its_way() -> None:
    script = Script(obeys=False)
    script.see(1)
    busy(script, 5)
    script.stance(Stance.SHADOW)
    tick = script.see(30)
    assert tick.decisions[0].outcome is Outcome.SUPERSEDED
    assert "shadow" in tick.decisions[0].message
    assert tick.pending is None
    assert (tick.desired, tick.desired_mode) == (None, None)


def test_an_unmeasured_engine_in_shadow_is_told_to_be_unmeasured() -> None:
    script = Script(config(stance=Stance.SHADOW))
    assert any("not measured" in warning for warning in script.see(1).warnings)


# -- read-only --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"plugin": PluginStatus.ABSENT}, "plugin absent: observing only"),
        (
            {"plugin": PluginStatus.REFUSED, "plugin_message": "SGLang 0.6 is not known"},
            "plugin refused: SGLang 0.6 is not known: observing only",
        ),
        ({"plugin": PluginStatus.PROTOCOL, "protocol": 7}, "plugin speaks protocol 7"),
    ],
)
def test_an_engine_that_cannot_be_commanded_is_only_watched(
    changes: dict[str, object], text: str
) -> None:
    script = Script(config(engine=facts().model_copy(update=changes)))
    busy(script, 20)
    assert script.commands == []
    assert script.ticks[-1].verdict.reason is Reason.READ_ONLY
    assert script.ticks[-1].verdict.text.startswith(text)
    assert script.ticks[-1].decode_tok_s == 3_000


def test_read_only_by_configuration_sends_nothing() -> None:
    script = Script(config(read_only=True))
    busy(script, 20)
    assert script.commands == []


def test_a_foreign_claim_is_an_alarm_with_its_holder_and_no_command() -> None:
    script = Script()
    script.see(1)
    for _ in range(12):
        script.see(30, claim_holder="cp-b", claim_remaining_s=12.0)
    assert len(script.commands) == 1
    tick = script.ticks[-1]
    assert tick.verdict.text == "claimed by cp-b for 12 s more: observing only"
    assert [alarm.code for alarm in tick.alarms] == ["foreign_claim"]
    tick = script.see(30)
    assert tick.alarms == ()
    assert script.commands[-1].mode is Mode.OFF


# -- off that is slower than plain ------------------------------------------------------------


def test_automation_never_picks_an_off_known_to_be_slower_and_never_calls_it_off() -> None:
    worse = facts("s3k1d4", "s1k1d2", OFF, off=OffKind.ONE_TOKEN_VERIFY)
    script = Script(config(engine=worse))
    script.see(1)
    for _ in range(60):
        tick = script.see(200, kv=KvNumbers(capacity=100, committed=95))
        assert "0.25 to 0.31" in tick.warnings[0]
        assert OFF not in tick.verdict.text.split()
        assert all(item.tier != OFF for item in tick.verdict.outlook)
    assert all(command.mode is not Mode.OFF for command in script.commands)


def test_a_policy_that_is_only_a_slow_off_is_not_ready() -> None:
    worse = facts("s3k1d4", OFF, off=OffKind.ONE_TOKEN_VERIFY)
    script = Script(config(FixedPolicy(tier=OFF), engine=worse))
    tick = script.see(1)
    assert tick.verdict.reason is Reason.NOT_READY
    assert "one-token verify" in tick.verdict.text
    assert script.commands == []


# -- gaps and stale numbers -------------------------------------------------------------------


def test_a_gap_keeps_what_was_asked_and_says_when_the_lease_ends() -> None:
    script = Script()
    script.see(1)
    script.see(1)
    tick = script.gap()
    assert tick.verdict.reason is Reason.GAP
    assert tick.verdict.tier is None
    assert (tick.desired, tick.confirmed) == ("s3k1d4", None)
    assert "s3k1d4 kept" in tick.verdict.text
    assert "lease ends in 29.0 s" in tick.verdict.text


def test_a_minute_without_metrics_under_load_switches_nothing_and_makes_no_burst() -> None:
    script = Script(config(lease_s=300.0))
    script.see(1)
    for _ in range(3):
        script.see(30)
    sent = len(script.commands)
    for _ in range(120):
        script.gap()
    assert [alarm.code for alarm in script.ticks[-1].alarms] == ["engine_unreachable"]
    tick = script.see(30)
    assert tick.decisions == ()
    assert tick.alarms == ()
    for _ in range(3):
        assert script.see(30).decisions == ()
    # The hold starts at the first sample after the hole.
    assert script.see(30).decisions[0].reason is Reason.LOAD_UP
    assert len(script.commands) == sent + 1


def test_one_missed_poll_does_not_break_a_hold() -> None:
    script = Script()
    script.see(1)
    script.see(30)
    script.see(30)
    script.gap()
    script.see(30)
    assert script.see(30).decisions[0].reason is Reason.LOAD_UP


def test_repeated_numbers_are_no_evidence_and_turn_stale() -> None:
    script = Script(config(stale_after_s=2.0))
    script.see(1)
    script.see(30)
    ticks = [script.see(30, fresh=False) for _ in range(20)]
    assert script.decisions == {}
    assert ticks[0].verdict.reason is Reason.HOLDING
    assert ticks[-1].verdict.reason is Reason.STALE
    assert [alarm.code for alarm in ticks[-1].alarms] == ["metrics_stale"]
    assert ticks[-1].stale_s == 10.0
    assert script.see(30).alarms == ()


def test_an_engine_that_does_not_tell_its_load_is_left_alone() -> None:
    script = Script()
    for _ in range(10):
        tick = script.see(30, concurrency=None, replica_concurrency=None)
    assert tick.verdict.reason is Reason.NOT_READY
    assert script.decisions == {}


def test_a_change_by_the_engine_is_not_acted_on_while_the_numbers_are_old() -> None:
    script = Script(config(stale_after_s=2.0, lease_s=300.0))
    script.see(1)
    for _ in range(6):
        script.see(1, fresh=False)
    script.move(OFF, SwitchReason.KV_SHORT)
    assert script.see(1, fresh=False).decisions == ()
    assert script.see(1).decisions[0].to_tier == "s3k1d4"


def test_ranks_that_are_not_seen_for_a_moment_are_no_change() -> None:
    script = Script()
    script.see(1)
    script.see(1)
    hidden = (RankTier(dp_rank=0, tp_rank=0, tier=None),)
    tick = script.see(1, engine_tier=None, applied=hidden)
    assert (tick.confirmed, tick.decisions, tick.alarms) == (None, (), ())
    assert script.see(1).confirmed == "s3k1d4"
    assert script.decisions == {}


# -- accept length ----------------------------------------------------------------------------

POOR: dict[str, Any] = {"accept_length": 1.2, "accept_tier": "s3k1d4", "accept_requests": 90}


def with_floor() -> Script:
    return Script(config(two_tiers(min_accept_length={"s3k1d4": 1.8}, accept_hold_s=5.0)))


def test_a_poor_window_of_the_confirmed_tier_leads_to_the_next_busier_one() -> None:
    script = with_floor()
    for _ in range(14):
        script.see(4, **POOR)
    assert script.switched == [("s3k1d4", OFF)]
    assert script.decisions[max(script.decisions)].reason is Reason.ACCEPT_FLOOR


@pytest.mark.parametrize(
    "changes",
    [
        {"accept_requests": 63},
        {"accept_tier": "s1k1d2"},
        {"accept_length": None},
        {"verify_steps": 10},
        {"fresh": False},
    ],
)
def test_a_window_that_is_small_foreign_missing_or_old_is_no_evidence(
    changes: dict[str, Any],
) -> None:
    script = with_floor()
    script.see(4, verify_steps=10)
    for _ in range(40):
        script.see(4, **(POOR | changes))
    assert script.decisions == {}


def test_the_window_of_the_sample_that_confirms_a_tier_is_not_counted() -> None:
    script = with_floor()
    script.see(1)
    busy(script, 8)
    while script.tier == OFF:
        script.see(1)
    script.see(1, **POOR)
    assert script.state.policy.low_ms == 0
    script.see(1, **POOR)
    assert script.state.policy.low_ms > 0


# -- rates ------------------------------------------------------------------------------------


def test_tokens_per_second_come_from_the_counter_over_monotonic_time() -> None:
    script = Script()
    assert script.see(1).decode_tok_s is None
    assert script.see(20).decode_tok_s == 2_000


def test_fast_polls_share_one_window_of_at_least_400_ms() -> None:
    script = Script(every_ms=100)
    rates = [script.see(10).decode_tok_s for _ in range(12)]
    assert rates[:4] == [None] * 4
    assert rates[4:] == [5_000.0] * 8


def test_an_idle_engine_makes_zero_only_when_its_counter_did_not_move() -> None:
    script = Script()
    script.see(1)
    assert script.see(0).decode_tok_s == 0.0
    assert script.see(0, decode_tokens=None).decode_tok_s is None


def test_no_rate_is_negative_over_a_restart() -> None:
    script = Script()
    for _ in range(4):
        script.see(30)
    script.restart()
    assert script.see(30).decode_tok_s is None
    assert script.see(30).decode_tok_s == 3_000


def test_no_rate_is_told_across_two_clocks() -> None:
    script = Script()
    script.see(30)
    script.clock_id, script.mono_ms = "clock-2", 7
    assert script.see(30).decode_tok_s is None


def test_a_wall_clock_step_does_not_touch_rates_or_holds() -> None:
    script = Script()
    script.see(1)
    for index in range(5):
        script.utc_ms += 3_600_000 * (-1) ** index
        tick = script.see(30)
    assert tick.decode_tok_s == 3_000
    assert tick.decisions[0].reason is Reason.LOAD_UP


# -- restarts ---------------------------------------------------------------------------------


def test_a_restarted_engine_gets_back_what_was_wanted_after_the_grace() -> None:
    script = Script(config(two_tiers(start_grace_s=2.0)))
    for _ in range(6):
        script.see(1)
    busy(script, 12)
    assert script.tier == OFF
    script.restart()
    tick = script.see(30)
    assert tick.verdict.reason is Reason.RESTART
    sent = len(script.commands)
    ticks = [script.see(30) for _ in range(3)]
    assert {tick.verdict.reason for tick in ticks} == {Reason.GRACE}
    assert len(script.commands) == sent
    tick = script.see(30)
    assert (tick.decisions[0].to_tier, tick.decisions[0].reason) == (OFF, Reason.RESTART)
    assert (script.commands[-1].epoch, script.commands[-1].generation) == (0, 1)
    for _ in range(24):
        script.see(2)
    assert script.decisions[max(script.decisions)].reason is Reason.LOAD_DOWN


def test_what_was_held_against_a_tier_before_a_restart_is_void_after_it() -> None:
    policy = two_tiers(min_accept_length={"s3k1d4": 1.8}, accept_hold_s=5.0)
    script = Script(config(policy))
    poor: dict[str, Any] = {"accept_length": 1.2, "accept_tier": "s3k1d4", "accept_requests": 90}
    script.see(4)
    for _ in range(9):
        script.see(4, **poor)
    script.restart()
    script.see(4)
    for _ in range(10):
        script.see(4, **poor)
    assert script.decisions == {}
    for _ in range(2):
        script.see(4, **poor)
    assert script.decisions[max(script.decisions)].reason is Reason.ACCEPT_FLOOR


def test_a_restart_settles_the_decision_on_its_way() -> None:
    script = Script(obeys=False)
    script.see(1)
    busy(script, 5)
    script.restart()
    tick = script.see(30)
    assert tick.decisions[0].outcome is Outcome.SUPERSEDED
    assert "restarted" in tick.decisions[0].message


def test_an_unpatched_engine_whose_counter_goes_back_has_restarted() -> None:
    absent = facts().model_copy(update={"plugin": PluginStatus.ABSENT, "boot_id": None})
    script = Script(config(engine=absent))
    script.see(30, boot_id=None)
    script.see(30, boot_id=None)
    script.decode_tokens = 0
    assert script.see(30, boot_id=None).decode_tok_s is None


# -- replay -----------------------------------------------------------------------------------


def test_a_recorded_run_gives_identical_verdicts_again() -> None:
    script = Script(config(two_tiers(min_accept_length={"s3k1d4": 1.8}, start_grace_s=2.0)))
    for _ in range(8):
        script.see(1, accept_length=1.2, accept_tier="s3k1d4", accept_requests=90)
    busy(script, 10)
    script.gap()
    script.restart()
    busy(script, 10)
    for _ in range(30):
        script.see(2)
    assert again(script) == script.ticks


def test_leaving_out_explanations_changes_no_state_and_no_decision() -> None:
    full, bare = Script(), Script(explain=False)
    for load in [1] * 4 + [30] * 12 + [3] * 30:
        assert full.see(load).decisions == bare.see(load).decisions
        assert full.state == bare.state
    assert full.commands == bare.commands
    assert len(full.decisions) == 2


def test_the_same_state_and_observation_give_the_same_answer() -> None:
    script = Script()
    script.see(1)
    script.wait(500)
    observation = script.sample(30)
    first = step(script.config, script.state, observation)
    assert step(script.config, script.state, observation) == first


def test_a_new_configuration_of_equal_content_changes_nothing() -> None:
    script = Script()
    script.see(1)
    busy(script, 3)
    before = script.state.policy
    script.use(script.config.model_copy(deep=True))
    script.see(30)
    assert script.state.policy.up_since == before.up_since


def test_a_new_policy_version_starts_from_the_present_tier() -> None:
    script = Script()
    script.see(1)
    busy(script, 8)
    version = script.config.policy.model_copy(
        update={"version": 2, "policy": two_tiers(up_hold_s=9.0)}
    )
    script.use(script.config.model_copy(update={"policy": version}))
    tick = script.see(30)
    assert (tick.policy_version, tick.desired, tick.decisions) == (2, OFF, ())


def test_the_initial_state_of_equal_configurations_is_equal() -> None:
    assert initial(config()) == initial(config())


def test_ranks_that_are_not_seen_are_never_confirmed() -> None:
    script = Script()
    hidden = (RankTier(dp_rank=0, tp_rank=0, tier=None),)
    for _ in range(3):
        tick = script.see(1, engine_tier=None, applied=hidden)
    assert tick.confirmed is None
    assert tick.verdict.reason is Reason.NOT_READY
    assert script.commands == []
    assert tick.engine_id == ENGINE


def test_a_change_by_the_engine_itself_is_told_and_asked_back() -> None:
    script = Script()
    script.see(1)
    script.see(1)
    script.move(OFF, SwitchReason.KV_SHORT)
    tick = script.see(1, switches=tuple(script.switches))
    assert [alarm.code for alarm in tick.alarms] == ["tier_changed"]
    assert "kv short" in tick.alarms[0].text
    assert tick.decisions[0].to_tier == "s3k1d4"
    assert "by itself" in tick.decisions[0].text
    tick = script.see(1)
    assert (tick.confirmed, tick.alarms) == ("s3k1d4", ())
