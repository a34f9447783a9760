"""Header, notices and essentials: what an operator must see first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Any

from console.board import Board, apply, with_status
from console.header import all_notices, essentials, header, lease_words, notices
from console.scene import Link, LinkState, Scene
from console.spans import plain, width
from store.records import Tick
from tests.console_pictures import NOW_MS
from tests.console_story import DEEP, ENGINE, alarm, facts, gap, override, sample, status, tick


def shown(*ticks: Tick, **changes: Any) -> Scene:
    board = with_status(Board(ENGINE), status(known=changes.pop("known", None)))
    for one in ticks:
        board = apply(board, one)
    return Scene(board, now_ms=NOW_MS, zone=UTC, **changes)


def noted(scene: Scene, size: int = 80) -> list[str]:
    return [plain(row).rstrip() for row in notices(scene, size)]


LIVE = (tick(sample(120)),)


def test_the_header_names_engine_model_age_and_the_zone_of_the_time() -> None:
    text = plain(header(shown(*LIVE), 80))
    assert text.startswith(" specdeck  LIVE ● h200-0 · Qwen3-8B")
    assert text.endswith("poll 0.5s  age 0.3s  12:04:31 UTC ")


def test_one_of_several_engines_says_which() -> None:
    several = shown(*LIVE, engines=("b200-0", ENGINE, "h200-1"))
    assert "h200-0 [2/3]" in plain(header(several, 80))


def test_a_long_name_gives_way_to_age_and_time() -> None:
    scene = shown(*LIVE)
    long = replace(scene, board=replace(scene.board, name="a-very-long-name-" * 6))
    assert plain(header(long, 80)).endswith("age 0.3s  12:04:31 UTC ")


def test_a_lost_control_plane_says_why_and_when_it_is_tried_again() -> None:
    link = Link(LinkState.LOST, "connection refused", NOW_MS + 3200)
    scene = shown(*LIVE, link=link)
    assert noted(scene) == [" ! control plane lost, retry in 3.2s: connection refused"]
    assert "LOST !" in plain(header(scene, 80))
    late = replace(scene, now_ms=NOW_MS + 60_000)
    assert "trying again" in noted(late)[0]


def test_a_gap_names_its_cause_and_when_the_engines_lease_ends() -> None:
    scene = shown(tick(sample(110)), tick(gap(120), None, desired=DEEP))
    assert noted(scene) == [
        " ! engine unreachable: connection refused",
        " ! engine's lease ends in 18s",
    ]
    late = replace(scene, now_ms=NOW_MS + 60_000)
    assert lease_words(late) == "engine's lease has ended"


def test_an_alarm_that_says_the_same_as_the_gap_is_not_said_twice() -> None:
    words = "no answer for 5.0 s: engine unreachable: connection refused"
    scene = shown(tick(gap(120), None, desired=DEEP, alarms=(alarm("gap", words),)))
    assert noted(scene) == [f" ! {words}"]


def test_long_notices_are_wrapped_while_there_is_room() -> None:
    words = "a warning " * 12
    rows = noted(shown(tick(sample(120), warnings=(words,))))
    assert len(rows) == 2
    assert "…" not in "".join(rows)


def test_many_notices_are_cut_to_three_rows_and_counted() -> None:
    alarms = tuple(alarm(f"a{n}", f"alarm number {n} " * 8) for n in range(5))
    scene = shown(tick(sample(120), alarms=alarms))
    rows = noted(scene)
    assert len(rows) == 3
    assert rows[2] == " ! and 3 more: ? shows all"
    assert len(all_notices(scene)) == 5
    assert all(width(row) == 80 for row in notices(scene, 80))


def test_alarms_come_before_warnings() -> None:
    scene = shown(tick(sample(120), warnings=("w",), alarms=(alarm("a", "it burns"),)))
    assert noted(scene) == [" ! it burns", " ! w"]


def test_a_simulation_that_fell_behind_invalidates_its_times() -> None:
    scene = shown(tick(sample(120, simulation_valid=False, simulation_lag=0.031)))
    assert noted(scene) == [" ! simulation fell behind by 3.1 %: this run's times are invalid"]
    told = "simulated times are not valid in this run: 3.1 % lag"
    twice = shown(tick(sample(120, simulation_valid=False), warnings=(told,)))
    assert noted(twice) == [f" ! {told}"]


def test_a_frozen_picture_says_how_far_it_is_behind() -> None:
    scene = shown(*LIVE, frozen=True, behind_ms=12_400, missed=25)
    assert noted(scene) == [" ! frozen at 12:04:31, 12s and 25 ticks behind, p goes on"]
    assert "FROZEN ‖" in plain(header(scene, 80))
    assert "1 tick behind" in noted(replace(scene, missed=1))[0]


def test_the_essentials_hold_mode_why_age_override_and_mark() -> None:
    known = facts(simulated=True, simulation_table="h200-8b-triton")
    last = tick(sample(120), override=override(), override_left_s=221.3)
    text = "\n".join(plain(row) for row in essentials(shown(last, known=known), 40, 12))
    for words in (
        "age 0.3s",
        "▲ ON s3k1d4",
        "OVERRIDE 03:41 left",
        "SIMULATED h200-8b-triton",
        "why",
        "q Quit",
    ):
        assert words in text
