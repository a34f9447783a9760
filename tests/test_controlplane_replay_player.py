"""Where a replay stands: play, pause, seek, speed, jumps; time is told, never asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.replay_player import FASTEST, LONGEST_MS, SLOWEST, Mark, Player, Tape
from store.session_track import from_rows, row
from tests.session_parts import Recorded


def _tape(loads: list[int]) -> Tape:
    recorded = Recorded()
    for load in loads:
        recorded.see(load)
    return _of(recorded)


def _of(recorded: Recorded) -> Tape:
    rows = [
        row(t.observation.seq, t.observation.at_utc_ms, False, t.model_dump(mode="json"))
        for t in recorded.ticks
    ]
    return Tape.of(from_rows(rows), markers=(3,))


TAPE = _tape([1] * 10 + [40] * 20)


def test_it_plays_at_the_recorded_pace_and_stops_at_the_end() -> None:
    player = Player(TAPE).play(0)
    assert player.place(499) == 0
    assert player.place(500) == 1
    assert player.place(10_000) == 20
    assert not player.ended(14_000)
    assert player.ended(14_500)
    assert player.place(99_999) == 29


def test_speed_changes_the_pace_from_where_it_is() -> None:
    player = Player(TAPE).play(0).at_speed(4, 1000)
    assert player.place(1000) == 2
    assert player.place(2000) == 10
    assert Player(TAPE).at_speed(0.001, 0).speed == SLOWEST
    assert Player(TAPE).at_speed(1e9, 0).speed == FASTEST


def test_pausing_holds_and_playing_at_the_end_begins_anew() -> None:
    player = Player(TAPE).play(0).pause(3000)
    assert player.place(9000) == player.place(3000) == 6
    again = player.sought(29, 9000).play(9000)
    assert again.place(9000) == 0


def test_jumps_go_to_marks_of_their_kind_and_nowhere_without_one() -> None:
    player = Player(TAPE)
    decision = TAPE.marks[Mark.DECISION][0]
    jumped = player.jumped(Mark.DECISION, 0)
    assert jumped is not None
    assert TAPE.seqs[jumped.place(0)] == decision
    assert jumped.jumped(Mark.DIFFERENCE, 0) is None
    marker = jumped.jumped(Mark.MARKER, 0, back=True)
    assert marker is not None
    assert TAPE.seqs[marker.place(0)] == 3
    parted = Player(TAPE.with_differences([20])).jumped(Mark.DIFFERENCE, 0)
    assert parted is not None
    assert TAPE.seqs[parted.place(0)] == 20


def test_a_clock_that_was_set_back_neither_stops_nor_repeats_the_tape() -> None:
    recorded = Recorded()
    for _ in range(5):
        recorded.see(1)
    recorded.utc_ms -= 3_600_000
    for _ in range(5):
        recorded.see(1)
    recorded.new_process()
    recorded.utc_ms += 600_000
    for _ in range(5):
        recorded.see(1)
    tape = _of(recorded)
    assert list(tape.times_ms) == sorted(tape.times_ms)
    assert tape.times_ms[9] == 9 * 500
    assert tape.times_ms[10] == 9 * 500 + LONGEST_MS  # a long pause is shortened


@given(
    st.lists(
        st.tuples(st.sampled_from(["play", "pause", "seek", "speed", "wait"]), st.integers(0, 40)),
        max_size=20,
    )
)
def test_it_is_always_somewhere_on_the_tape(orders: list[tuple[str, int]]) -> None:
    player, now = Player(TAPE), 0.0
    for order, value in orders:
        match order:
            case "play":
                player = player.play(now)
            case "pause":
                player = player.pause(now)
            case "seek":
                player = player.sought(value, now)
                assert player.place(now) == min(value, len(TAPE.seqs) - 1)
            case "speed":
                player = player.at_speed(float(value), now)
            case "wait":
                now += value * 100
        assert 0 <= player.place(now) < len(TAPE.seqs)
