"""Names, reasons and messages written by others can do nothing to the terminal."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from console.messages import HistoryArrived, StatusArrived, TickArrived
from console.screens.set_override import SetOverride
from controlplane.client import ControlPlaneError
from controlplane.messages import EngineStatus
from store.records import Outcome, Tick
from tests.console_pictures import Picture, ToldConsole, about, opened
from tests.console_story import (
    DEEP,
    ENGINE,
    OFF,
    alarm,
    decision,
    facts,
    gap,
    override,
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


def harmless(app: ToldConsole) -> str:
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
