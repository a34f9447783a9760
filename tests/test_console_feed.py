"""The feed: what it posts, and how it comes back from a control plane that stops answering."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from textual.message import Message

from console import feed as feed_module
from console.clock import Clock
from console.feed import Feed
from console.messages import HistoryArrived, LinkChanged, StatusArrived, TickArrived
from console.scene import LinkState
from controlplane import recording
from controlplane.client import ControlPlaneClient
from store import sqlite
from store.records import Tick
from tests.console_story import sample, tick
from tests.controlplane_rig import ENGINE, control_plane, deck, embedded_engine, settings_of


class Posted:
    """What a feed posted, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        self.messages.append(message)

    def of(self, kind: type[Message]) -> list[Message]:
        """The messages of one kind."""
        return [message for message in self.messages if isinstance(message, kind)]

    @property
    def link(self) -> LinkState | None:
        """The newest state of the link."""
        changes = [m for m in self.messages if isinstance(m, LinkChanged)]
        return changes[-1].link.state if changes else None

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for a condition, or fail."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def following(url: str, engine_id: str = ENGINE) -> AsyncIterator[tuple[Posted, Clock]]:
    """A feed of one engine on the control plane at ``url``."""
    posted, clock = Posted(), Clock()
    async with ControlPlaneClient(url, timeout_s=1.0) as client:
        task = asyncio.create_task(Feed(client, engine_id, posted, clock).run())
        try:
            yield posted, clock
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_it_posts_who_answers_then_the_past_then_the_present(tmp_path: Path) -> None:
    with embedded_engine() as engine:
        async with control_plane(settings_of(tmp_path, engine.url)) as running:
            await asyncio.sleep(0.5)
            async with following(running.url) as (posted, clock):
                await posted.until(lambda: len(posted.of(TickArrived)) >= 3)
                kinds = [type(message) for message in posted.messages]
                assert kinds[:3] == [StatusArrived, HistoryArrived, LinkChanged]
                assert posted.link is LinkState.LIVE
                past = posted.messages[1]
                assert isinstance(past, HistoryArrived)
                assert past.ticks
                seen = [tick.observation.seq for tick in past.ticks] + [
                    m.tick.observation.seq for m in posted.messages if isinstance(m, TickArrived)
                ]
                assert seen == list(range(seen[0], seen[0] + len(seen)))
                async with running.client() as client:
                    server_ms = (await client.about()).now_utc_ms
                assert abs(clock.now_ms() - server_ms) < 1000


async def test_a_control_plane_that_freezes_is_lost_with_a_reason_and_followed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "SILENT_LEAST_S", 0.5)
    monkeypatch.setattr(feed_module, "SILENT_POLLS", 1)
    monkeypatch.setattr(feed_module, "RETRY_MAX_S", 0.5)
    with embedded_engine() as engine:
        arguments = ["--database", str(tmp_path / "deck.sqlite3"), "--engine", engine.url]
        with deck(arguments, os.environ) as running:
            async with ControlPlaneClient(running.url) as client:
                engine_id = (await client.engines())[0].engine.engine_id
            async with following(running.url, engine_id) as (posted, _):
                await posted.until(lambda: bool(posted.of(TickArrived)))
                running.process.send_signal(signal.SIGSTOP)
                await posted.until(lambda: posted.link is LinkState.LOST)
                lost = posted.messages[-1]
                assert isinstance(lost, LinkChanged)
                assert "sent no tick" in lost.link.reason
                assert lost.link.retry_at_ms is not None
                running.process.send_signal(signal.SIGCONT)
                before = len(posted.of(TickArrived))
                await posted.until(lambda: len(posted.of(TickArrived)) > before + 2)
                assert posted.link is LinkState.LIVE
                seqs = [
                    m.tick.observation.seq for m in posted.messages if isinstance(m, TickArrived)
                ]
                assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


async def test_ticks_that_are_not_stored_yet_are_shown_once_with_their_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    monkeypatch.setattr(recording, "WAIT_S", 0.1)

    def shown(posted: Posted) -> list[Tick]:
        return [m.tick for m in posted.messages if isinstance(m, TickArrived)]

    with embedded_engine() as engine:
        async with (
            control_plane(settings_of(tmp_path, engine.url)) as running,
            following(running.url) as (posted, _),
        ):
            await posted.until(lambda: len(shown(posted)) > 2, 60)
            with closing(sqlite3.connect(tmp_path / "deck.sqlite3", isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                await posted.until(lambda: sum(not tick.id for tick in shown(posted)) > 3, 60)
                other.execute("ROLLBACK")
            unstored = [tick for tick in shown(posted) if not tick.id]
            codes = {alarm.code for alarm in unstored[-1].alarms}
            assert "store_failed" in codes
            last = unstored[-1].observation.seq
            await posted.until(
                lambda: shown(posted)[-1].observation.seq > last + 3 and shown(posted)[-1].id > 0,
                60,
            )
            assert posted.link is LinkState.LIVE
            seqs = [tick.observation.seq for tick in shown(posted)]
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


def test_a_number_given_out_again_after_a_restart_is_a_new_tick() -> None:
    unstored = tick(sample(7, at_utc_ms=7000))
    assert feed_module.was_shown(tick(sample(6, at_utc_ms=6000)), unstored)
    assert not feed_module.was_shown(tick(sample(6, at_utc_ms=9000)), unstored)
    assert not feed_module.was_shown(tick(sample(8, at_utc_ms=8000)), unstored)
    assert not feed_module.was_shown(tick(sample(1, at_utc_ms=1000)), None)


async def test_nobody_answering_is_said_with_the_moment_of_the_next_try(tmp_path: Path) -> None:
    async with following("http://127.0.0.1:9") as (posted, clock):
        await posted.until(lambda: len(posted.of(LinkChanged)) >= 3)
        waits = []
        for message in posted.of(LinkChanged):
            assert isinstance(message, LinkChanged)
            assert message.link.state is LinkState.LOST
            assert "no control plane answers" in message.link.reason
            assert message.link.retry_at_ms is not None
            waits.append(message.link.retry_at_ms)
        assert waits == sorted(waits)
        assert clock.now_ms() > 0


@pytest.mark.parametrize(
    ("seen", "newest", "goes_on"),
    [
        (None, 50, False),
        (40, None, False),
        (40, 50, True),
        (40, 40, True),
        (40, 39, False),
        (40, 40 + feed_module.MISSED_TICKS, True),
        (40, 41 + feed_module.MISSED_TICKS, False),
    ],
)
def test_a_stream_goes_on_unless_the_store_is_another_or_too_much_was_missed(
    seen: int | None, newest: int | None, goes_on: bool
) -> None:
    def at(number: int | None) -> Tick | None:
        return None if number is None else tick(sample(0, seq=number), id=number)

    assert feed_module.continues(at(seen), at(newest)) is goes_on
