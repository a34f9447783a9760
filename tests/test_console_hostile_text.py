"""Names, reasons and messages written by others can do nothing to the terminal."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.widgets import Input

from console.messages import HistoryArrived, LookedUp, StatusArrived, TickArrived
from console.places import Need
from console.screens.sessions import Sessions, SessionsListed
from console.screens.set_override import SetOverride
from controlplane.benchrun_messages import BenchState, BenchStatus
from controlplane.client import ControlPlaneError
from controlplane.messages import EngineStatus
from controlplane.sessions_messages import SessionInfo
from store.records import AuditEntry, Outcome, Tick
from tests import console_bench_pictures as bench_pictures
from tests import console_bench_story as bench_story
from tests.console_fleet_story import costs, fleet, row, versions
from tests.console_pictures import Picture, about, opened
from tests.console_story import (
    DEEP,
    ENGINE,
    OFF,
    alarm,
    decision,
    facts,
    gap,
    override,
    policy,
    sample,
    status,
    tick,
)
from tests.frames import frame

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\n"
HOSTILE = f"[bold red]x[/] [@click=app.quit]y[/] [/] {ESCAPES}\u202e\u200b"


def hostile_status() -> EngineStatus:
    """Every text that an engine or a person may have written, hostile."""
    known = facts()
    assert known.identity is not None
    assert known.versions is not None
    identity = known.identity.model_copy(
        update={"model": HOSTILE, "draft_model": HOSTILE, "gpu": HOSTILE, "cap_origin": HOSTILE}
    )
    versions = known.versions.model_copy(update={"engine": HOSTILE, "engine_version": HOSTILE})
    told = status(known=facts(identity=identity, versions=versions, plugin_message=HOSTILE))
    engine = told.engine.model_copy(update={"name": HOSTILE, "url": HOSTILE})
    return told.model_copy(update={"engine": engine})


def hostile_ticks() -> list[Tick]:
    """The same in decisions, alarms, gaps, verdicts and overrides."""
    by_hand = decision(
        1,
        DEEP,
        OFF,
        author=HOSTILE,
        text=HOSTILE,
        clauses=(),
        message=HOSTILE,
        outcome=Outcome.REFUSED,
    )
    held = override().model_copy(update={"reason": HOSTILE, "author": HOSTILE})
    first = tick(sample(1))
    verdict = first.verdict.model_copy(update={"text": HOSTILE, "clauses": ()})
    return [
        first,
        tick(gap(2, HOSTILE), None, desired=DEEP),
        tick(
            sample(120),
            verdict=verdict,
            override=held,
            override_left_s=200.0,
            decisions=(by_hand,),
            alarms=(alarm("a", HOSTILE),),
            warnings=(HOSTILE,),
        ),
    ]


def harmless(app: App[None]) -> str:
    """The frame, checked for anything a terminal would act on."""
    # A choice binds its marks to their words with no-break spaces.
    text = frame(app).replace("\N{NO-BREAK SPACE}", " ")
    bad = [row for row in text.splitlines() if not row.isprintable()]
    assert not bad, ascii(bad)
    return text


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        ((), (80, 24)),
        ((), (120, 40)),
        ((), (50, 12)),
        (("enter",), (80, 24)),
        (("question_mark",), (80, 24)),
        (("m",), (80, 24)),
        (("e",), (80, 24)),
        (("x",), (80, 24)),
        (("a",), (80, 24)),
        (("ctrl+p",), (80, 24)),
    ],
)
async def test_no_screen_lets_markup_or_escape_codes_through(
    keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    picture = Picture(
        "hostile",
        size=size,
        ticks=hostile_ticks,
        engines=lambda: (hostile_status(), status(HOSTILE[:40])),
        keys=keys,
        options={"author": HOSTILE[:60]},
    )
    async with opened(picture) as (app, _):
        text = harmless(app)
        assert app.is_running
        if not keys and size != (50, 12):
            assert "[bold red]x[/]" in text


async def test_a_refusal_written_by_a_hostile_server_is_text() -> None:
    async with opened(Picture("hostile", keys=("m",))) as (app, pilot):
        assert isinstance(app.screen, SetOverride)
        app.screen.query_one("#reason", Input).value = "load test"
        await pilot.pause()
        app.screen.answer(f"! refused: {ControlPlaneError(HOSTILE)}")
        await pilot.pause()
        assert "[bold red]x[/]" in harmless(app)


async def test_a_hostile_name_in_the_palette_is_found_and_shown_as_text() -> None:
    picture = Picture("hostile", engines=lambda: (status(), hostile_status()), keys=("ctrl+p",))
    other = hostile_status()
    renamed = other.model_copy(
        update={"engine": other.engine.model_copy(update={"engine_id": "other"})}
    )
    async with opened(Picture("hostile")) as (app, pilot):
        app.post_message(StatusArrived(about(), (status(), renamed)))
        await pilot.pause()
        await pilot.press("ctrl+p", *"engine")
        await pilot.pause(0.3)
        assert "Engine (bold red)x(/)" in harmless(app)
        assert picture.name == "hostile"


async def test_hostile_ticks_that_come_one_by_one_do_no_more() -> None:
    async with opened(Picture("hostile", ticks=lambda: ())) as (app, pilot):
        app.post_message(HistoryArrived(ENGINE, (), (), ()))
        for one in hostile_ticks():
            app.post_message(TickArrived(one))
            await pilot.pause()
            harmless(app)


def hostile_looked() -> dict[Need, object]:
    """What screens read beside the stream, hostile."""
    bad = row(
        "x" + HOSTILE[:30],
        name=HOSTILE[:40],
        group=HOSTILE[:30],
        model=HOSTILE,
        text=HOSTILE,
        gap=HOSTILE,
        override_by=HOSTILE[:40],
        alarms=(alarm("a", HOSTILE),),
        warnings=(HOSTILE,),
    )
    newest = policy().model_copy(update={"author": HOSTILE[:50], "reason": HOSTILE})
    entry = AuditEntry(
        id=1, at_utc_ms=1, actor=HOSTILE, action=HOSTILE, target=HOSTILE, detail=HOSTILE
    )
    return {
        Need.FLEET: fleet(bad, row(ENGINE)),
        Need.COSTS: costs().model_copy(update={"source": HOSTILE}),
        Need.POLICIES: (newest, *versions()[1:]),
        Need.AUDIT: (entry,),
    }


WAYS = ("1", "g", "A", "3", "enter", "4", "t", "b", "i", "5", "6", "enter", "2", "E")
"""Screens and dialogs, one after another; dialogs are left again."""


@pytest.mark.parametrize("size", [(60, 16), (160, 40)])
async def test_no_screen_of_the_frame_does_either(size: tuple[int, int]) -> None:
    picture = Picture(
        "hostile",
        size=size,
        ticks=hostile_ticks,
        engines=lambda: (hostile_status(),),
        looked=hostile_looked,
        options={"author": HOSTILE[:60]},
    )
    async with opened(picture) as (app, pilot):
        for trouble in ("", HOSTILE):
            if trouble:
                for need in Need:
                    app.post_message(LookedUp(need, ENGINE, None, trouble))
            for key in WAYS:
                await pilot.press(key)
                await pilot.pause()
                harmless(app)
                if len(app.screen_stack) > 1:
                    await pilot.press("escape")
                    await pilot.pause()
        assert app.is_running


async def test_what_is_copied_and_linked_is_text() -> None:
    picture = Picture("hostile", ticks=hostile_ticks, engines=lambda: (hostile_status(),))
    async with opened(picture) as (app, pilot):
        for keys in (("3", "y"), ("L",)):
            await pilot.press(*keys)
            await pilot.pause()
            copied = app.clipboard
            assert copied
            assert all(char.isprintable() or char == "\n" for char in copied), ascii(copied)


def hostile_benches() -> tuple[BenchStatus, ...]:
    """One that ended early and one that runs, every text hostile."""
    words = {
        "author": HOSTILE[:60],
        "reason": HOSTILE,
        "setup_key": HOSTILE,
        "message": HOSTILE,
        "prompts": HOSTILE,
        "client": (HOSTILE,),
        "notes": (HOSTILE,),
    }
    done = bench_story.status(**words, id=HOSTILE, state=BenchState.STOPPED)
    return bench_story.running(**words, phase=HOSTILE), done


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40)])
@pytest.mark.parametrize(
    "keys", [(), ("c",), ("left_square_bracket",), ("left_square_bracket", "a")]
)
async def test_benchmarks_written_by_others_are_text(
    keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    picture = bench_pictures.Picture("hostile", size=size, benches=hostile_benches, keys=keys)
    async with bench_pictures.opened(picture) as (app, _, pilot):
        await pilot.pause()
        harmless(app)
        assert app.is_running


@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
async def test_names_of_sessions_are_text(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(Sessions, "start_feed", lambda _: None)
    named = SessionInfo(
        id=1, name=HOSTILE, engine_id=HOSTILE[:60], first_seq=1, last_seq=9, started_utc_ms=1
    )
    async with opened(Picture("hostile", size=size, keys=("8",))) as (app, pilot):
        assert isinstance(app.screen, Sessions)
        for trouble in ("", HOSTILE):
            app.screen.post_message(SessionsListed((named,), trouble))
            await pilot.pause()
            assert "[bold red]x" in harmless(app)
