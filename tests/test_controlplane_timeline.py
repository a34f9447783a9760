"""The controller's time line: clocks, holes, restarts, rates."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.timeline import RATE_WINDOW_MS, Clock, Timeline, passed_gap, passed_sample
from tests.controlplane_script import Script

STALE = 2_000


def test_time_follows_the_monotonic_clock_within_one_domain() -> None:
    clock = Clock().at(1_000, 50, "a").at(9_999_999, 550, "a")
    assert clock.now_ms == 500


def test_time_follows_utc_between_two_domains_and_never_goes_back() -> None:
    clock = Clock().at(1_000, 50, "a").at(4_000, 7, "b")
    assert clock.now_ms == 3_000
    assert clock.at(1_000, 3, "c").now_ms == 3_000


def test_an_observation_older_than_the_last_moment_does_not_turn_time_back() -> None:
    clock = Clock().at(1_000, 1_000, "a")
    assert clock.at(990, 990, "a") is clock
    assert clock.at(1_500, 1_500, "a").now_ms == 500


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.sampled_from("abc")), max_size=30
    )
)
@settings(deadline=None)
def test_time_never_runs_backwards(moments: list[tuple[int, int, str]]) -> None:
    clock, last = Clock(), 0
    for utc, mono, domain in moments:
        clock = clock.at(utc, mono, domain)
        assert clock.now_ms >= last
        last = clock.now_ms


def test_evidence_counts_the_time_since_the_last_fresh_sample() -> None:
    script, time = Script(), Timeline()
    time, first = passed_sample(time, script.sample(), STALE)
    assert (first.hole, first.since_ms) == (True, 0)
    script.wait(700)
    time, second = passed_sample(time, script.sample(), STALE)
    assert (second.hole, second.since_ms) == (False, 700)
    script.wait(700)
    time, _ = passed_sample(time, script.sample(fresh=False), STALE)
    assert time.stale_ms() == 700
    script.wait(700)
    time, third = passed_sample(time, script.sample(), STALE)
    assert (third.hole, third.since_ms) == (False, 1_400)
    script.wait(2_001)
    _, late = passed_sample(time, script.sample(), STALE)
    assert (late.hole, late.since_ms) == (True, 0)


def test_retractions_are_counted_between_samples_and_not_over_a_restart() -> None:
    script, time = Script(), Timeline()
    time, first = passed_sample(time, script.sample(retractions=7), STALE)
    assert first.retracted == 0
    script.wait(500)
    time, second = passed_sample(time, script.sample(retractions=9), STALE)
    assert second.retracted == 2
    script.wait(500)
    script.restart()
    time, third = passed_sample(time, script.sample(retractions=1), STALE)
    assert (third.restart, third.retracted) == (True, 0)
    assert time.restarted is True


def test_an_accept_length_is_old_when_nothing_was_verified_since() -> None:
    script, time = Script(), Timeline()
    time, _ = passed_sample(time, script.sample(verify_steps=40), STALE)
    script.wait(500)
    time, idle = passed_sample(time, script.sample(verify_steps=40), STALE)
    assert idle.verified is False
    script.wait(500)
    _, busy = passed_sample(time, script.sample(verify_steps=41), STALE)
    assert busy.verified is True


def test_a_rate_that_was_measured_before_a_long_silence_is_not_kept() -> None:
    script, time = Script(), Timeline()
    for tokens in (0, 1_000):
        script.wait(500)
        time, _ = passed_sample(time, script.sample(decode_tokens=tokens), STALE)
    assert time.tok_s == 2_000
    script.wait(500)
    script.seq += 1
    gap = Script(mono_ms=script.mono_ms, utc_ms=script.utc_ms)
    gap.gap(after_ms=0)
    (observation,) = gap.observations
    time = passed_gap(time, observation, STALE)  # type: ignore[arg-type]
    assert time.tok_s == 2_000
    gap.gap(after_ms=2_500)
    time = passed_gap(time, gap.observations[-1], STALE)  # type: ignore[arg-type]
    assert time.tok_s is None


@given(
    steps=st.lists(st.tuples(st.integers(1, 1_500), st.integers(0, 5_000)), min_size=2, max_size=40)
)
@settings(deadline=None)
def test_a_rate_spans_at_least_the_window_and_is_the_counters_slope(
    steps: list[tuple[int, int]],
) -> None:
    script, time, tokens = Script(), Timeline(), 0
    seen: list[tuple[int, int]] = []
    for ms, more in steps:
        script.wait(ms)
        tokens += more
        time, _ = passed_sample(time, script.sample(decode_tokens=tokens), 10_000)
        seen.append((time.clock.now_ms, tokens))
        if time.tok_s is None:
            assert time.clock.now_ms - seen[0][0] < RATE_WINDOW_MS
            continue
        now, count = seen[-1]
        # The newest earlier sample that lies a whole window back.
        start, base = max(pair for pair in seen if now - pair[0] >= RATE_WINDOW_MS)
        assert time.tok_s == (count - base) * 1000 / (now - start)
