"""The control plane's housekeeping: ages from settings, a log that a reader holds, alarms."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from controlplane import maintenance
from controlplane.clock import SystemClock
from controlplane.maintenance import DAY_MS, Maintenance, retention
from controlplane.settings_storage import Storage
from store import sqlite
from store.db import Store
from store.pruning import Pruned
from store.records import RawScrape
from store.retention import Retention
from tests.store_records import a_tick

NOW = 1_795_000_000_000
MB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@contextmanager
def a_long_reader(path: Path) -> Iterator[None]:
    """Another program that keeps one moment open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM ticks").fetchone()
        yield


def _a_long_scrape() -> RawScrape:
    text = secrets.token_hex(100_000)
    return RawScrape(engine_id="e1", seq=1, at_utc_ms=NOW, path="/metrics", text=text)


def test_the_ages_of_the_settings_become_times() -> None:
    found = retention(Storage(), NOW, whole=False)
    assert found == Retention(
        ticks=NOW - 30 * DAY_MS,
        scrapes=NOW - 30 * DAY_MS,
        history=None,
        downsample=NOW - 7 * DAY_MS,
        every_ms=10_000,
        whole=False,
    )
    for_ever = Storage(ticks_days=0, scrapes_days=0, downsample_after_days=0)
    assert retention(for_ever, NOW, whole=True) == Retention()


async def test_old_ticks_go_and_old_days_are_down_sampled(path: Path) -> None:
    clock = SystemClock()
    now = clock.utc_ms()
    with Store.open(path) as store:
        ages = [31 * DAY_MS] * 5 + [8 * DAY_MS] * 5 + [DAY_MS] * 5
        store.write(
            [a_tick(seq=seq, at_utc_ms=now - age) for seq, age in enumerate(ages, start=1)]
        ).result(timeout=30)
        looked_after = Maintenance(store, Storage(), clock)
        await looked_after.prune()
        assert looked_after.removed == Pruned(ticks=5, downsampled=4)
        assert [tick.observation.seq for tick in store.ticks("e1", after_id=0)] == [
            6,
            *range(11, 16),
        ]
        assert looked_after.alarms() == ()


async def test_a_reader_that_holds_the_log_is_an_alarm_until_it_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "LOOK_S", 0.02)
    monkeypatch.setattr(sqlite, "WAL_LIMIT_BYTES", MB)
    with Store.open(path) as store:
        looked_after = Maintenance(store, Storage(wal_alarm_mb=1.5), SystemClock())
        task = asyncio.create_task(looked_after.run())
        with a_long_reader(path):
            while not looked_after.alarms():
                await asyncio.wrap_future(store.write([_a_long_scrape()]))
            (alarm,) = looked_after.alarms()
            assert alarm.code == "wal_too_long"
            assert "lsof" in alarm.text
            size = store.size
            assert size is not None
            assert size.wal > 1.5 * MB
            # Writing goes on at once: nobody waits for the reader.
            await asyncio.wrap_future(store.write([_a_long_scrape()]))
        end = asyncio.get_running_loop().time() + 60
        while looked_after.alarms():
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.02)
        size = store.size
        assert size is not None
        assert size.wal <= MB
        task.cancel()
    assert caplog.text.count("wal_too_long") == 1


async def test_a_database_that_cannot_be_written_is_an_alarm_and_a_trouble(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    with Store.open(path) as store:
        looked_after = Maintenance(store, Storage(), SystemClock())
        assert looked_after.troubles() == []
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            kept = store.write([a_tick()], keep=True)
            end = asyncio.get_running_loop().time() + 60
            while not looked_after.troubles():
                assert asyncio.get_running_loop().time() < end
                await asyncio.sleep(0.01)
            assert [one.code for one in looked_after.alarms()] == ["not_recording"]
            await looked_after.prune()
            codes = {one.code for one in looked_after.alarms()}
            assert codes == {"not_recording", "prune_failed"}
            other.execute("ROLLBACK")
        await asyncio.wrap_future(kept)
        await looked_after.prune()
        while looked_after.alarms():
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.01)
