"""Overrides: they outrank automation, always end, and never last longer than granted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_patch.contract_words import Mode, OffKind, RefusalCode
from engine_patch.tier import OFF
from store.observations import KvNumbers, PluginStatus
from store.policies import Stance
from store.records import Guards, Outcome, Reason
from tests.controlplane_script import UTC, Script, config, facts, override, two_tiers

FULL = KvNumbers(capacity=100_000, committed=95_000, evictable=0, reserve=0)


def started(script: Script | None = None) -> Script:
    made = script or Script()
    for _ in range(3):
        made.see(1)
    return made


@pytest.mark.parametrize("stance", list(Stance))
def test_an_override_acts_in_every_stance(stance: Stance) -> None:
    script = started(Script(config(stance=stance)))
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
    tick = script.see(1)
    assert tick.decisions[0].author == "op1"
    assert tick.decisions[0].reason is Reason.OVERRIDE
    assert script.see(1).confirmed == OFF


def test_the_engines_lease_is_the_overrides_time_left() -> None:
    script = started()
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms))
    script.see(1)
    assert script.commands[-1].lease_s == pytest.approx(59.5, abs=0.01)
    assert script.commands[-1].lease_s <= 59.5


def test_an_override_is_sent_once_and_not_renewed() -> None:
    script = started()
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms))
    sent = len(script.commands)
    for _ in range(100):
        script.see(1)
    assert len(script.commands) == sent + 1


def test_it_holds_against_the_load_and_shows_what_automation_would_do() -> None:
    script = started()
    script.person(override(Mode.ON, tier="s3k1d4", at_utc_ms=script.utc_ms))
    for _ in range(20):
        tick = script.see(60)
    assert tick.confirmed == "s3k1d4"
    assert tick.verdict.reason is Reason.OVERRIDE
    first = tick.verdict.outlook[0]
    assert (first.tier, first.reason) == (OFF, Reason.LOAD_UP)
    assert first.blocked.startswith("override ")


def test_it_ends_on_time_and_automation_goes_to_what_it_wants() -> None:
    script = started()
    script.launch = OFF
    script.person(override(Mode.OFF, length_s=10.0, at_utc_ms=script.utc_ms))
    for _ in range(19):
        tick = script.see(1)
    assert tick.override is not None
    assert tick.override_left_s == 0.5
    ended = script.see(1)
    assert ended.override is not None
    assert ended.override.ended_by == "expired"
    assert ended.override.ended_utc_ms == script.utc_ms
    assert ended.override_left_s == 0.0
    assert ended.verdict.reason is Reason.OVERRIDE_ENDED
    assert ended.decisions[0].reason is Reason.OVERRIDE_ENDED
    assert ended.decisions[0].to_tier == "s3k1d4"
    after = script.see(1)
    assert (after.override, after.confirmed) == (None, "s3k1d4")


def test_after_its_end_the_tier_from_before_returns_even_inside_the_band() -> None:
    script = started()
    script.person(override(Mode.OFF, length_s=10.0, at_utc_ms=script.utc_ms))
    for _ in range(24):
        script.see(20)
    assert script.tier == "s3k1d4"


def test_a_release_is_told_with_who_had_it() -> None:
    script = started()
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
    script.see(1)
    script.person(None)
    tick = script.see(1)
    assert tick.verdict.reason is Reason.OVERRIDE_ENDED
    assert tick.verdict.text.startswith('override "load test" by op1 released: s3k1d4')
    assert tick.override is None
    assert script.see(1).confirmed == "s3k1d4"


@pytest.mark.parametrize("stance", [Stance.SHADOW, Stance.PAUSED])
def test_a_release_without_automation_hands_the_engine_back(stance: Stance) -> None:
    script = started(Script(config(stance=stance)))
    script.person(override(Mode.OFF, length_s=600.0, at_utc_ms=script.utc_ms))
    script.see(1)
    script.see(1)
    script.person(None)
    script.see(1)
    assert (script.commands[-1].mode, script.commands[-1].lease_s) == (Mode.OFF, 1.0)
    sent = len(script.commands)
    for _ in range(10):
        script.see(1)
    assert len(script.commands) == sent
    assert script.tier == "s3k1d4"


def test_an_extension_moves_the_end_by_what_was_granted_more() -> None:
    script = started()
    first = override(Mode.OFF, length_s=10.0, at_utc_ms=script.utc_ms)
    script.person(first)
    for _ in range(10):
        script.see(1)
    # A wall clock that was stepped meanwhile must not change what an extension is worth.
    script.utc_ms += 3_600_000
    longer = first.model_copy(
        update={"granted_s": 15.0, "expires_utc_ms": first.expires_utc_ms + 5_000}
    )
    script.person(longer)
    tick = script.see(1)
    assert tick.override_left_s == 9.5
    assert script.commands[-1].lease_s == pytest.approx(9.5, abs=0.01)


def test_another_override_replaces_the_one_in_force() -> None:
    script = started()
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
    script.see(1)
    script.see(1)
    script.person(override(Mode.ON, tier="s3k1d4", at_utc_ms=script.utc_ms, number=2))
    tick = script.see(1)
    assert tick.override is not None
    assert tick.override.id == 2
    assert script.see(1).confirmed == "s3k1d4"


def test_an_engine_whose_lease_ends_a_moment_earlier_is_not_asked_again() -> None:
    script = started()
    script.person(override(Mode.OFF, length_s=10.0, at_utc_ms=script.utc_ms))
    script.see(1)
    script.see(1)
    sent = len(script.commands)
    tick = script.see(1, after_ms=8_999)
    assert script.tier == "s3k1d4"
    assert tick.override_left_s == 0.001
    assert (tick.decisions, tick.alarms) == ((), ())
    assert len(script.commands) == sent


def test_an_engine_whose_lease_runs_wrong_gets_the_right_one() -> None:
    script = started()
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms))
    for _ in range(10):
        script.see(1)
    assert script.lease_ms is not None
    script.lease_ms += 30_000
    script.see(1)
    assert script.commands[-1].lease_s == pytest.approx(54.5, abs=0.01)


def test_extending_an_override_that_was_not_applied_tries_it_again_at_once() -> None:
    script = started(Script(config(command_timeout_s=0.5, retries=0), obeys=False))
    first = override(Mode.OFF, at_utc_ms=script.utc_ms)
    script.person(first)
    for _ in range(3):
        script.see(1)
    assert script.state.obedience.pending is None
    script.person(first.model_copy(update={"granted_s": 90.0}))
    assert script.see(1, after_ms=100).decisions[0].outcome is Outcome.REQUESTED


def test_a_new_override_does_not_wait_for_an_earlier_failure() -> None:
    script = started(Script(config(command_timeout_s=0.5, retries=0), obeys=False))
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
    for _ in range(3):
        tick = script.see(1)
    assert [alarm.code for alarm in tick.alarms] == ["not_applied"]
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms, number=2))
    assert script.see(1).decisions[0].outcome is Outcome.REQUESTED


def test_on_without_a_tier_asks_for_the_last_speculating_one_and_records_which() -> None:
    script = started()
    for _ in range(8):
        script.see(60)
    assert script.tier == OFF
    script.person(override(Mode.ON, at_utc_ms=script.utc_ms))
    script.see(60)
    assert (script.commands[-1].mode, script.commands[-1].tier) == (Mode.ON, None)
    tick = script.see(60)
    assert tick.decisions[0].outcome is Outcome.CONFIRMED
    assert tick.decisions[0].to_tier == "s3k1d4"


def test_auto_hands_the_engine_to_its_own_thresholds() -> None:
    script = started()
    script.person(override(Mode.AUTO, at_utc_ms=script.utc_ms))
    script.see(1)
    assert script.commands[-1].mode is Mode.AUTO
    tick = script.see(1)
    assert tick.decisions[0].outcome is Outcome.CONFIRMED
    assert tick.desired_mode is Mode.AUTO
    assert tick.verdict.tier is None


def test_an_override_waits_for_no_start_grace() -> None:
    script = Script(config(two_tiers(start_grace_s=60.0)))
    script.see(1)
    assert script.commands == []
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
    script.see(1)
    assert script.commands[-1].mode is Mode.OFF


def test_a_restarted_engine_gets_the_override_back_with_what_is_left() -> None:
    script = started(Script(config(two_tiers(start_grace_s=2.0))))
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms))
    for _ in range(20):
        script.see(1)
    script.restart()
    for _ in range(4):
        script.see(1)
        assert script.tier == "s3k1d4"
    script.see(1)
    assert script.commands[-1].mode is Mode.OFF
    assert script.commands[-1].lease_s <= 47.5
    assert (script.commands[-1].epoch, script.commands[-1].generation) == (0, 1)


def test_an_override_of_a_slow_off_is_called_what_it_is() -> None:
    worse = facts("s3k1d4", OFF, off=OffKind.ONE_TOKEN_VERIFY)
    script = started(Script(config(engine=worse)))
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
    tick = script.see(1)
    assert "one-token verify" in tick.verdict.text
    assert script.see(1).confirmed == OFF


def test_an_override_of_an_engine_that_cannot_be_commanded_is_an_alarm() -> None:
    absent = facts().model_copy(update={"plugin": PluginStatus.ABSENT})
    script = started(Script(config(engine=absent)))
    script.person(override(Mode.OFF, at_utc_ms=script.utc_ms))
    tick = script.see(1)
    assert [alarm.code for alarm in tick.alarms] == ["override_blocked"]
    assert script.commands == []


def test_a_refused_override_is_recorded_with_the_engines_words() -> None:
    script = started(Script(obeys=False))
    script.person(override(Mode.AUTO, at_utc_ms=script.utc_ms))
    script.see(1)
    decision = script.answer(RefusalCode.NO_THRESHOLDS, message="no thresholds were ever accepted")
    assert decision is not None
    assert (decision.outcome, decision.author) == (Outcome.REFUSED, "op1")


# -- guards -----------------------------------------------------------------------------------


def test_a_guard_acts_during_an_override_that_keeps_guards_and_is_recorded_as_such() -> None:
    script = started()
    script.person(override(Mode.ON, tier="s3k1d4", length_s=600.0, at_utc_ms=script.utc_ms))
    script.see(4)
    tick = script.see(4, kv=FULL)
    assert tick.decisions[0].reason is Reason.KV_PRESSURE
    assert tick.decisions[0].author == "auto"
    assert "guard acts in override" in tick.verdict.text
    assert tick.decisions[0].clauses[0].value == 0.95
    assert tick.override is not None
    assert script.see(4, kv=FULL).confirmed == OFF
    # The guard stays for the dwell at least, however fast the slots come free.
    for _ in range(8):
        assert script.see(4).confirmed == OFF
    for _ in range(12):
        tick = script.see(4)
    assert tick.confirmed == "s3k1d4"
    assert tick.verdict.reason is Reason.OVERRIDE
    assert script.switched == [("s3k1d4", OFF), (OFF, "s3k1d4")]


def test_a_guard_lets_an_override_return_only_when_its_reserve_fits() -> None:
    script = started()
    script.person(override(Mode.ON, tier="s3k1d4", length_s=600.0, at_utc_ms=script.utc_ms))
    script.see(1_000)
    script.see(1_000, kv=FULL)
    # 8 slots per request for s3k1d4: 1 000 requests take 8 % of the slots.
    nearly = KvNumbers(capacity=100_000, committed=79_000, evictable=0, reserve=0)
    for _ in range(40):
        script.see(1_000, kv=nearly)
    assert script.tier == OFF
    for _ in range(40):
        script.see(800, kv=nearly)
    assert script.tier == "s3k1d4"


def test_no_guard_acts_during_an_override_that_suspends_them() -> None:
    script = started()
    script.person(override(Mode.ON, tier="s3k1d4", guards=Guards.SUSPEND, at_utc_ms=script.utc_ms))
    for _ in range(20):
        script.see(4, kv=FULL)
    assert script.tier == "s3k1d4"
    assert script.switched == []


def test_a_guard_in_an_override_does_not_outlast_its_grant_in_the_engine() -> None:
    script = started(Script(config(lease_s=300.0)))
    script.person(override(Mode.ON, tier="s3k1d4", length_s=10.0, at_utc_ms=script.utc_ms))
    script.see(4)
    script.see(4, kv=FULL)
    assert script.commands[-1].mode is Mode.OFF
    assert script.commands[-1].lease_s <= 9.0


# -- granted time -----------------------------------------------------------------------------


def test_a_gap_does_not_stop_an_override_from_ending() -> None:
    script = started()
    script.person(override(Mode.OFF, length_s=5.0, at_utc_ms=script.utc_ms))
    script.see(1)
    for _ in range(8):
        script.gap()
    ended = script.gap()
    assert ended.override is not None
    assert ended.override.ended_by == "expired"
    assert ended.verdict.reason is Reason.GAP
    assert script.gap().override is None
    assert script.see(1).verdict.reason is Reason.OVERRIDE_ENDED


def test_a_restored_override_has_what_utc_leaves_of_it() -> None:
    script = Script()
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms - 45_000))
    assert script.see(1).override_left_s == 14.5


def test_an_override_that_ran_out_while_the_control_plane_was_down_ends_at_once() -> None:
    script = Script()
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms - 61_000))
    tick = script.see(1)
    assert tick.override is not None
    assert tick.override.ended_by == "expired"
    assert all(command.mode is not Mode.OFF for command in script.commands)


def test_a_wall_clock_before_its_creation_leaves_at_most_what_was_granted() -> None:
    script = Script()
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms + 3_600_000))
    tick = script.see(1)
    assert tick.override_left_s is not None
    assert tick.override_left_s <= 60.0


def test_the_engines_own_lease_bounds_an_override_that_utc_says_nothing_about() -> None:
    script = Script(claim="cp-a", lease_ms=20_000, mode=Mode.OFF, tier=OFF)
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms + 3_600_000))
    assert script.see(1).override_left_s == 19.5


def test_a_clock_that_went_back_over_a_restart_is_bounded_by_the_engines_lease() -> None:
    script = started()
    script.person(override(Mode.OFF, length_s=60.0, at_utc_ms=script.utc_ms))
    script.see(1)
    script.see(1)
    # The engine has counted 40 s that UTC, stepped back meanwhile, knows nothing of.
    assert script.lease_ms is not None
    script.lease_ms -= 40_000
    script.clock_id, script.mono_ms = "clock-2", 5
    script.utc_ms -= 3_600_000
    tick = script.see(1)
    assert tick.override_left_s is not None
    assert tick.override_left_s <= 18.5


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["sample", "gap", "clock", "wall", "restart", "stance"]),
            st.integers(1, 4_000),
        ),
        min_size=5,
        max_size=60,
    ),
    length_s=st.floats(0.5, 40.0),
)
@settings(max_examples=150, deadline=None)
def test_the_granted_length_is_never_exceeded_and_the_end_always_told(
    steps: list[tuple[str, int]], length_s: float
) -> None:
    script = started()
    asked = override(Mode.OFF, length_s=length_s, at_utc_ms=script.utc_ms)
    script.person(asked)
    # Whole milliseconds, and never more than was granted.
    since_ms, ends, granted_ms = 0, 0, int(length_s * 1000)
    for kind, ms in steps:
        since_ms += ms
        if kind == "wall":
            # Within one clock the wall clock does not count.
            script.utc_ms += 3_600_000 if ms % 2 else -3_600_000
        elif kind == "clock":
            # Another clock: only UTC tells how long it has been, so it runs on unbroken here.
            script.clock_id, script.mono_ms = f"after-{since_ms}", ms * 7
        elif kind == "restart":
            script.restart(f"boot-{since_ms}")
        elif kind == "stance":
            script.stance(list(Stance)[ms % 3])
        sent = len(script.commands)
        tick = script.gap(after_ms=ms) if kind == "gap" else script.see(1, after_ms=ms)
        over = since_ms >= granted_ms
        in_force = tick.override is not None and tick.override.ended_utc_ms is None
        assert in_force == (not over)
        if tick.override is not None and tick.override.ended_utc_ms is not None:
            ends += 1
        for command in script.commands[sent:]:
            if in_force:
                assert command.lease_s * 1000 <= granted_ms - since_ms + 1
            else:
                assert command.mode is Mode.ON
    assert ends == (since_ms >= granted_ms)


@given(
    downs=st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 10)), max_size=6),
    length_s=st.floats(1.0, 60.0),
)
@settings(deadline=None)
def test_control_plane_restarts_neither_lengthen_nor_lose_an_override(
    downs: list[tuple[int, int]], length_s: float
) -> None:
    asked = override(Mode.OFF, length_s=length_s)
    utc = UTC
    for number, (down_ms, samples) in enumerate(downs):
        script = Script(utc_ms=utc + down_ms, mono_ms=17 * number, clock_id=f"clock-{number}")
        script.person(asked)
        for _ in range(samples):
            tick = script.see(1)
            left = asked.expires_utc_ms - script.utc_ms
            if tick.override is not None and tick.override.ended_utc_ms is None:
                assert tick.override_left_s is not None
                assert abs(tick.override_left_s * 1000 - left) < 1.01
            else:
                assert left <= 0
        utc = script.utc_ms
