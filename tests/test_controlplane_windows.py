"""Which gauges say anything about now."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.metrics import ReplicaMetrics, read_metrics
from controlplane.windows import AcceptReading, GaugeWindow, advance, combine

SAMPLES = Path(__file__).parent / "samples" / "cpu-0.5.23"
ADAPTIVE = Path(__file__).parent / "samples" / "cpu-0.5.23-adaptive"


def scrape(name: str) -> ReplicaMetrics:
    (replica,) = read_metrics((SAMPLES / f"{name}.metrics.txt").read_text()).replicas
    return replica


def recorded(name: str) -> ReplicaMetrics:
    """A scrape of the server that switched by itself."""
    packed = (ADAPTIVE / f"{name}.metrics.txt.gz").read_bytes()
    (replica,) = read_metrics(gzip.decompress(packed).decode()).replicas
    return replica


LOAD, JUST_IDLE, IDLE, PLAIN = (
    scrape(name) for name in ("spec-load", "spec-just-idle", "spec-idle", "plain-load")
)


def later(now: ReplicaMetrics, tokens: int = 100, **changes: object) -> ReplicaMetrics:
    """The next scrape: ``tokens`` more decoded, and a new gauge window."""
    assert now.decode_tokens is not None
    assert now.gen_throughput is not None
    values: dict[str, object] = {
        "decode_tokens": now.decode_tokens + tokens,
        "gen_throughput": now.gen_throughput + 1.5,
        **changes,
    }
    return replace(now, **values)  # type: ignore[arg-type]


def run(*scrapes: ReplicaMetrics) -> list[AcceptReading | None]:
    window: GaugeWindow | None = None
    readings = []
    for one in scrapes:
        window, reading = advance(window, one)
        readings.append(reading)
    return readings


def test_a_window_between_two_of_the_same_shape_is_used() -> None:
    readings = run(LOAD, later(LOAD, accept_length=1.7))
    assert readings == [None, AcceptReading(1.7, 3, 4, weight=8)]


def test_idle_shows_no_accept_length_though_the_gauge_keeps_one() -> None:
    # Recorded 1 s and 35 s after the last request: the gauge says 1.84 both times.
    assert IDLE.accept_length == pytest.approx(1.8385, abs=1e-4)
    readings = run(LOAD, later(LOAD), JUST_IDLE, IDLE)
    assert readings[1] is not None
    assert readings[3] is None


def test_the_gauge_left_over_from_before_a_pause_is_not_used_when_work_resumes() -> None:
    resumed = replace(IDLE, decode_tokens=(IDLE.decode_tokens or 0) + 8, running=8)
    first_window = later(resumed, accept_length=1.5)
    readings = run(LOAD, later(LOAD), JUST_IDLE, IDLE, resumed, first_window)
    assert readings[4] is None
    assert readings[5] == AcceptReading(1.5, 3, 4, weight=8)


def test_a_repeated_window_with_a_moving_counter_stays_the_newest_window() -> None:
    window = later(LOAD, accept_length=1.7)
    repeated = replace(window, decode_tokens=(window.decode_tokens or 0) + 8)
    assert [r.length if r else None for r in run(LOAD, window, repeated)] == [None, 1.7, 1.7]


def test_a_repeated_value_with_an_unmoved_counter_is_no_reading() -> None:
    window = later(LOAD, accept_length=1.7)
    assert run(LOAD, window, window)[2] is None


def test_a_window_with_a_tier_change_is_discarded_and_the_next_one_used() -> None:
    one = later(LOAD)
    mixed = later(one, num_steps=1, num_draft_tokens=2, accept_length=1.6)
    same_window = replace(mixed, decode_tokens=(mixed.decode_tokens or 0) + 8)
    pure = later(same_window, accept_length=1.4)
    readings = run(LOAD, one, mixed, same_window, pure)
    assert readings[1] is not None
    assert readings[2:] == [None, None, AcceptReading(1.4, 1, 2, weight=8)]


def test_recorded_windows_with_a_tier_change_are_discarded() -> None:
    names = ("1-chain", "2-chain", "3-chain-to-one-step", "4-one-step", "5-to-off", "6-off")
    scrapes = [recorded(name) for name in names]
    # Each gauge names a length; that of the third window is of three steps and of one.
    lengths = [one.accept_length for one in scrapes]
    assert lengths == [1.65, 1.8, 1.65, 1.65, pytest.approx(1.0182, abs=1e-4), 1.0]
    readings = run(*scrapes)
    assert readings == [
        None,
        AcceptReading(1.8, 3, 4, weight=1),
        None,
        AcceptReading(1.65, 1, 2, weight=1),
        None,
        None,
    ]


def test_the_exported_rate_of_a_mixed_window_goes_by_its_last_shape() -> None:
    mixed = recorded("3-chain-to-one-step")
    assert (mixed.num_steps, mixed.num_draft_tokens) == (1, 2)
    # (1.65 - 1) / 1 draft, whatever was drafted before the switch.
    assert mixed.accept_rate == pytest.approx(0.65)


def test_recorded_steps_zero_reads_one_and_is_no_acceptance() -> None:
    off = recorded("6-off")
    assert (off.num_steps, off.num_draft_tokens, off.accept_length) == (0, 1, 1.0)
    assert run(off, later(off)) == [None, None]
    idle = recorded("7-idle")
    assert idle.accept_length == 1.0
    assert run(off, idle) == [None, None]


def test_steps_zero_reads_one_and_is_no_acceptance() -> None:
    off = replace(LOAD, num_steps=0, num_draft_tokens=1, accept_length=1.0)
    assert run(off, later(off), later(later(off))) == [None, None, None]


def test_a_plain_server_has_no_accept_length() -> None:
    assert run(PLAIN, later(PLAIN)) == [None, None]


def test_a_length_no_shape_can_reach_is_not_used() -> None:
    assert run(LOAD, later(LOAD, accept_length=4.5)) == [None, None]
    assert run(LOAD, later(LOAD, accept_length=0.5)) == [None, None]


def test_a_server_that_does_not_tell_its_shape_or_counter_gives_no_reading() -> None:
    untold = replace(LOAD, num_steps=None)
    assert run(untold, later(untold)) == [None, None]
    uncounted = replace(LOAD, decode_tokens=None)
    assert run(uncounted, replace(uncounted, gen_throughput=1.0)) == [None, None]


def test_replicas_of_one_shape_are_weighted_by_their_requests() -> None:
    both = combine([AcceptReading(2.0, 3, 4, weight=30), AcceptReading(3.0, 3, 4, weight=10)])
    assert both == AcceptReading(2.25, 3, 4, weight=40)


def test_replicas_of_different_shapes_have_no_common_accept_length() -> None:
    assert combine([AcceptReading(2.0, 3, 4, 1), AcceptReading(1.5, 1, 2, 1)]) is None
    assert combine([]) is None
