"""The replay screen against a real replay API of the shipped recording."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC
from functools import partial
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Button, Input

from console.formatting import cells, clock
from console.replay_process import ReplayError, ReplayProcess
from console.screens.replay_dialogs import AskWhatIf, Goto
from console.screens.replay_frame import READ_ONLY
from console.screens.replay_keys import ACTING
from controlplane.client import ControlPlaneClient, RefusedError
from controlplane.messages import OverrideRequest
from controlplane.whatif_policy import read_policy
from engine_patch.contract_words import Mode
from store.policies import HysteresisPolicy
from store.records import Decision, Marker
from store.session_writer import SessionWriter
from tests.console_replay_pictures import (
    ASKED,
    BY_NAME,
    EXAMPLE,
    FOURTH,
    PICTURES,
    Picture,
    ask,
    opened,
    press,
    replaying,
    taken,
    until,
)
from tests.controlplane_rig import until as until_true
from tests.controlplane_script import ENGINE, config, two_tiers
from tests.frames import FRAMES, frame
from tests.session_parts import Recorded


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """One replay for all tests; each begins at the beginning."""
    loop = asyncio.new_event_loop()
    process = loop.run_until_complete(ReplayProcess.start(EXAMPLE))
    yield process.url
    loop.run_until_complete(process.stop())
    loop.close()


@pytest.mark.parametrize("name", [picture.name for picture in PICTURES])
async def test_the_screen_reads_without_colour(
    url: str, name: str, snapshot: SnapshotAssertion
) -> None:
    picture = BY_NAME[name]
    text = await taken(url, picture)
    assert text == snapshot
    assert "REPLAY" in text
    if picture.options.get("ascii"):
        assert text.isascii(), sorted({char for char in text if not char.isascii()})
    if picture.shows:
        documented = (FRAMES / f"{name}.txt").read_text("utf-8")
        assert documented == text, "the documentation is behind: run python -m tests.frames"


async def test_every_size_is_filled_exactly_and_keeps_the_mark(url: str) -> None:
    async with opened(url, Picture("any", edits=ASKED)) as (app, screen, pilot):
        for width, height in ((20, 6), (37, 10), (59, 24), (60, 16), (79, 20), (99, 31), (160, 45)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda: screen.settled)
            await pilot.pause()
            rows = frame(app).splitlines()
            assert len(rows) == height
            assert all(cells(row) <= width for row in rows)
            assert "REPLAY" in rows[0]


async def test_without_colour_the_words_are_the_same(url: str) -> None:
    async with opened(url, BY_NAME["replay-no-color-80x24"]) as (app, _, _):
        assert app.native_ansi_color
        assert frame(app) == await taken(url, BY_NAME["replay-80x24"])


async def test_it_steps_seeks_and_changes_its_speed(url: str) -> None:
    async with opened(url, Picture("any")) as (_, screen, pilot):

        def place() -> int:
            state = screen.replay.state
            assert state is not None
            tick = screen.replay.board.tick
            assert tick is not None
            assert tick.observation.seq == state.seq
            return state.place

        await press(pilot, screen, "right", "right", "right", "left")
        assert place() == 2
        await press(pilot, screen, "full_stop")
        state = screen.replay.state
        assert state is not None
        assert 60 <= state.tape_s < 61.5
        middle = place()
        await press(pilot, screen, "comma")
        assert place() <= 3
        await press(pilot, screen, "end")
        assert place() == 220
        assert middle < 220
        await press(pilot, screen, "home", "plus", "plus", "plus", "minus")
        assert place() == 0
        state = screen.replay.state
        assert state is not None
        assert (state.speed, state.playing) == (4.0, False)


async def test_played_fast_to_the_end_no_tick_turns_into_a_gap(url: str) -> None:
    async with opened(url, Picture("any")) as (_, screen, pilot):
        for _ in range(20):
            await press(pilot, screen, "plus")
        await press(pilot, screen, "space")
        await until(pilot, lambda: screen.replay.state is not None and screen.replay.state.ended)
        await until(pilot, lambda: screen.settled)
        board = screen.replay.board
        assert board.tick is not None
        assert board.tick.observation.seq == 222
        played = board.history
        await press(pilot, screen, "home", "end")
        sought = screen.replay.board.history
        assert played[-200:] == sought[-200:]
        newest, told = screen.replay.board.log[0], board.log[0]
        assert newest.key == told.key
        assert isinstance(newest.event, Decision)
        assert isinstance(told.event, Decision)
        # In its own tick a decision has no row id yet; which of the two was read is of no account.
        assert newest.event.model_copy(update={"id": 0}) == told.event.model_copy(update={"id": 0})


async def test_it_jumps_both_ways_and_says_when_there_is_nothing(url: str) -> None:
    async with opened(url, Picture("any")) as (app, screen, pilot):

        def seq() -> int | None:
            return None if screen.replay.state is None else screen.replay.state.seq

        await press(pilot, screen, "k")
        assert seq() == 127
        assert "marker deploy by" in frame(app)
        await press(pilot, screen, "right_square_bracket")
        after = seq()
        await press(pilot, screen, "left_square_bracket")
        assert after is not None
        assert seq() is not None
        assert (seq() or 0) < 127 < after
        await press(pilot, screen, "end", "k")
        await until(pilot, lambda: "no marker after this observation" in frame(app))
        await press(pilot, screen, "n")
        await until(pilot, lambda: "no difference after this observation" in frame(app))


async def test_a_time_an_observation_and_a_share_can_be_typed(url: str) -> None:
    async with opened(url, Picture("any")) as (app, screen, pilot):

        def reached(seq: int | None = None, tape_s: float = 0.0) -> bool:
            state = screen.replay.state
            assert state is not None
            return state.seq == seq if seq else abs(state.tape_s - tape_s) < 0.01

        length_s = 0.0 if screen.replay.state is None else screen.replay.state.length_s
        for typed, there in (
            ("#100", partial(reached, 100)),
            ("50%", partial(reached, None, length_s / 2)),
            ("+10s", partial(reached, None, length_s / 2 + 10)),
            ("20:09:24", lambda: clock(screen.replay.now_ms, UTC) == "20:09:24"),
        ):
            await press(pilot, screen, "g")
            assert isinstance(app.screen, Goto)
            app.screen.query_one("#where", Input).value = typed
            await press(pilot, screen, "enter")
            await until(pilot, lambda there=there: app.screen is screen and there())  # type: ignore[misc]
        await press(pilot, screen, "g", "x", "enter")
        assert isinstance(app.screen, Goto)
        assert "write 12:04:31" in frame(app)


async def test_a_click_on_the_time_line_goes_there(url: str) -> None:
    async with opened(url, Picture("any")) as (_, screen, pilot):
        await pilot.click("#replay-line", offset=(11 + 57, 0))
        await until(pilot, lambda: screen.settled)
        state = screen.replay.state
        assert state is not None
        assert state.place == 220


async def test_a_what_if_is_asked_shown_jumped_through_and_taken_back(url: str) -> None:
    async with opened(url, Picture("any")) as (app, screen, pilot):
        await ask(pilot, screen, ASKED)
        found = screen.replay.what_if
        assert found is not None
        assert (found.recorded.switches, found.what_if.switches) == (8, 5)
        text = frame(app)
        assert "what-if   3333" in text
        assert "switches 8 → 5" in text
        await press(pilot, screen, "n")
        state = screen.replay.state
        assert state is not None
        assert state.seq == found.first_difference
        await press(pilot, screen, "tab")
        assert "═ decisions" in frame(app)
        await press(pilot, screen, "W")
        await until(pilot, lambda: screen.replay.what_if is None and screen.settled)
        state = screen.replay.state
        assert state is not None
        assert sum(len(cells) for mark, cells in marks(screen) if mark == "difference") == 0
        assert "what-if   " not in frame(app)


def marks(screen: object) -> list[tuple[str, tuple[int, ...]]]:
    """The time line's marks by kind."""
    strip = getattr(screen, "replay").strip  # noqa: B009
    return [(str(mark), cells) for mark, cells in strip.marks.items()]


async def test_a_wrong_question_stays_in_the_dialog_with_its_reason(url: str) -> None:
    async with opened(url, Picture("any")) as (app, screen, pilot):
        await press(pilot, screen, "w")
        dialog = app.screen
        assert isinstance(dialog, AskWhatIf)
        for field, value, words in (
            ("edits", "nonsense", "write PATH=VALUE, not 'nonsense'"),
            ("up-0", "many", "write a whole number"),
            ("file", "/nowhere/at/all.toml", "there is no file"),
        ):
            entry = dialog.query_one(f"#{field}", Input)
            before, entry.value = entry.value, value
            await pilot.pause()
            assert words in " ".join(frame(app).replace("│", " ").split()), frame(app)
            entry.value = before
        entry = dialog.query_one("#edits", Input)
        entry.value = "nothing.such=1"
        dialog.query_one("#act").focus()
        await pilot.press("enter")
        await until(pilot, lambda: "refused:" in frame(app))
        assert app.screen is dialog


async def test_the_policy_of_a_what_if_is_written_as_a_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long name would break the words that are looked for
    async with opened(url, Picture("any")) as (app, screen, pilot):
        assert screen.refusal("save").startswith("nothing was asked yet")
        await ask(pilot, screen, ASKED)
        for _ in range(2):
            await press(pilot, screen, "E")
            app.screen.query_one("#name", Input).value = "other.toml"
            app.screen.query_one("#act", Button).press()
            await until(pilot, lambda: app.screen is screen or "exists: write" in frame(app))
        assert app.screen is not screen  # the second time it is there already
    policy = read_policy(tmp_path / "other.toml")
    assert isinstance(policy, HysteresisPolicy)
    assert policy.boundaries[0].up_at == 6


async def test_the_recording_is_verified_and_says_so_for_good(url: str) -> None:
    async with opened(url, Picture("any")) as (app, screen, pilot):
        await press(pilot, screen, "v")
        await until(pilot, lambda: app.screen is not screen)
        assert "221 of 221 verdicts verified, 0 differ" in frame(app)
        await press(pilot, screen, "escape")
        assert "verified: identical, 221 of 221" in frame(app)


async def test_keys_that_act_in_live_are_refused_in_words(url: str) -> None:
    async with opened(url, Picture("any", size=(120, 30))) as (app, screen, pilot):
        for key, _, _ in ACTING:
            app.clear_notifications()
            await until(pilot, lambda: READ_ONLY[:40] not in frame(app))
            await pilot.press(key)
            await until(pilot, lambda: READ_ONLY[:40] in frame(app))
            assert app.screen is screen


async def test_nothing_can_be_sent_whatever_is_tried(url: str) -> None:
    async with opened(url, Picture("any", keys=FOURTH)) as (_, screen, _):
        engine_id = screen.replay.board.engine_id
        request = OverrideRequest(mode=Mode.OFF, length_s=60, author="op1", reason="x")
        async with ControlPlaneClient(url) as client:
            with pytest.raises(RefusedError, match="nothing can be sent to an engine"):
                await client.set_override(engine_id, request)


async def test_the_palette_offers_what_the_keys_do(url: str) -> None:
    async with opened(url, Picture("any", size=(80, 40), keys=("ctrl+p",))) as (app, _, pilot):
        await until(pilot, lambda: "Go to a time or an observation" in frame(app))
        assert "Not in a replay" not in frame(app)


async def test_a_replay_that_is_gone_is_said(tmp_path: Path) -> None:
    process = await ReplayProcess.start(EXAMPLE)
    async with opened(process.url, Picture("any")) as (app, screen, pilot):
        await process.stop()
        await pilot.press("right")
        await until(pilot, lambda: bool(screen.replay.trouble))
        assert "the replay does not answer" in frame(app)


async def test_a_start_that_is_given_up_leaves_no_process_behind() -> None:
    before = set(psutil.Process().children())

    def begun() -> set[psutil.Process]:
        return set(psutil.Process().children()) - before

    starting = asyncio.create_task(ReplayProcess.start(EXAMPLE))
    await until_true(lambda: bool(begun()), 60)
    left = begun()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not any(one.is_running() for one in left)


async def test_what_is_no_recording_is_refused_with_its_reason(tmp_path: Path) -> None:
    other = tmp_path / "other.specdeck"
    other.write_text("nothing")
    with pytest.raises(ReplayError, match=r"other\.specdeck"):
        await ReplayProcess.start(other)


async def test_what_a_recording_says_reaches_the_terminal_as_text_alone(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J[bold]\u202e"
    told = Recorded(config=config(two_tiers()))
    for load in [2] * 20 + [40] * 20:
        told.see(load)
    meta = {"engine_id": ENGINE, "name": f"night{hostile}"}
    with SessionWriter.create(tmp_path / "night.specdeck", meta) as writer:
        for given in told.inputs:
            writer.add_input(given)
        for tick in told.ticks:
            writer.add_tick(tick)
        writer.add_record(told.config.policy)
        at = told.ticks[0].observation
        words = {"kind": hostile[:40], "author": hostile, "text": hostile}
        writer.add_record(Marker(engine_id=ENGINE, at_utc_ms=at.at_utc_ms, seq=at.seq, **words))
    async with (
        replaying(tmp_path / "night.specdeck") as address,
        opened(address, Picture("any", size=(100, 30))) as (app, screen, pilot),
    ):
        seen = [frame(app)]
        for key in ("g", "w"):
            await press(pilot, screen, key)
            seen.append(frame(app))
            await press(pilot, screen, "escape")
        await ask(pilot, screen, "boundaries.0.up_at=100")
        seen.append(frame(app))
        await press(pilot, screen, "E")
        seen.append(frame(app))
    assert "marker" in seen[0]
    for text in seen:
        assert "night" in text
        # A choice keeps its words together with no-break spaces.
        odd = {char for char in text if not char.isprintable()} - {"\n", "\xa0"}
        assert not odd
