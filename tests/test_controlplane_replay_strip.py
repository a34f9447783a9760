"""The time line in cells: what is one tick long is on it, and each cell leads back to its tick."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.replay_player import Mark, Player, Tape
from controlplane.replay_strip import cell_of, place_of, strip
from controlplane.sessions_messages import ReplayRequest
from controlplane.whatif_estimate import Estimate, LoadModel
from controlplane.whatif_messages import Side, Turn, WhatIf
from store import session_track
from store.session_track import Track
from tests.controlplane_script import config, two_tiers
from tests.session_parts import Recorded

NOTHING = Estimate(tok_s=None, low=None, high=None, coverage=0.0, seconds=0.0)


def _recorded(loads: list[int]) -> Track:
    told = Recorded(config=config(two_tiers()))
    for load in loads:
        told.see(load)
    return session_track.from_rows(
        session_track.row(
            tick.observation.seq,
            tick.observation.at_utc_ms,
            False,
            tick.model_dump(mode="json"),
        )
        for tick in told.ticks
    )


def _what_if(turns: tuple[Turn, ...], switches: int) -> WhatIf:
    side = Side(switches=switches, turns=turns, seconds_in={}, estimate=NOTHING)
    return WhatIf(
        policy=config(two_tiers()).policy,
        load=LoadModel.RECORDED,
        samples=100,
        gaps=0,
        seconds=50.0,
        recorded=Side(switches=0, turns=(), seconds_in={}, estimate=NOTHING),
        what_if=side,
        recorded_covered_tok_s=None,
        oracle=NOTHING,
        first_difference=None,
        differences=(),
        cannot_know=(),
    )


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 400), st.data())
def test_a_cell_leads_back_to_itself_and_the_ends_are_the_ends(
    ticks: int, cells: int, data: st.DataObject
) -> None:
    cell = data.draw(st.integers(0, cells - 1))
    place = place_of(cell, ticks, cells)
    assert 0 <= place < ticks
    if ticks >= cells > 1:
        assert cell_of(place, ticks, cells) == cell
    if ticks > 1 and cells > 1:
        assert cell_of(0, ticks, cells) == 0
        assert cell_of(ticks - 1, ticks, cells) == cells - 1
    places = [cell_of(at, ticks, cells) for at in range(min(ticks, 50))]
    assert places == sorted(places)


def test_a_gap_and_a_tier_of_one_tick_are_on_it() -> None:
    track = _recorded([2] * 1000)
    track["gap"][500] = 1
    track["engine_tier"][500] = None
    track["engine_tier"][300] = "off"
    tape = Tape.of(track, [track["seq"][700]])
    found = strip(track, tape, 1000)
    assert found.gaps == (cell_of(500, 1000, 1000),)
    assert found.tiers[cell_of(300, 1000, 1000)] == "off"
    assert found.marks[Mark.MARKER] == (cell_of(700, 1000, 1000),)
    short = strip(track, tape, 10)
    assert len(short.tiers) == 10
    assert len(short.gaps) == 1
    assert None not in short.tiers


def test_a_short_recording_fills_a_long_line() -> None:
    track = _recorded([2, 2, 2])
    found = strip(track, Tape.of(track), 58)
    assert None not in found.tiers
    assert strip(_recorded([2]), Tape.of(_recorded([2])), 58).tiers[57] is not None


def test_the_other_policys_tiers_stand_beside_as_far_as_they_are_listed() -> None:
    track = _recorded([2] * 100)
    tape = Tape.of(track)
    first = track["seq"][0]
    turns = (
        Turn(seq=first + 50, at_utc_ms=1, from_tier="s3k1d4", to_tier="off", reason="x"),
        Turn(seq=first + 80, at_utc_ms=1, from_tier="off", to_tier="s3k1d4", reason="x"),
    )
    whole = strip(track, tape, 100, _what_if(turns, 2)).what_if
    assert whole == ("s3k1d4",) * 50 + ("off",) * 30 + ("s3k1d4",) * 20
    cut = strip(track, tape, 100, _what_if(turns, 40)).what_if
    assert cut[:80] == whole[:80]
    assert set(cut[80:]) == {None}


def test_without_a_change_the_other_policy_runs_what_ran_first() -> None:
    track = _recorded([2] * 10)
    found = strip(track, Tape.of(track), 10, _what_if((), 0))
    assert set(found.what_if) == {track["engine_tier"][0]}


def test_a_second_of_recorded_time_can_be_sought_whatever_the_wall_clock_did() -> None:
    track = _recorded([2] * 100)
    track["at_utc_ms"] = [
        at - (3_600_000 if row > 50 else 0) for row, at in enumerate(track["at_utc_ms"])
    ]
    player = Player(Tape.of(track))
    half = player.sought_time(player.tape.length_ms / 2, 0.0)
    assert half.place(0.0) in (49, 50)
    assert player.sought_time(1e18, 0.0).place(0.0) == 99
    assert player.sought_time(-5.0, 0.0).place(0.0) == 0
    assert ReplayRequest(tape_s=1.5).tape_s == 1.5
