"""The commands record, replay, what-if, compare and report, on real files and a real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from controlplane import sessions_cli
from controlplane.replay_verify import verify
from controlplane.sessions_headless import record
from controlplane.sessions_messages import MarkerRequest, StartSession, StopSession
from controlplane.sessions_report import render
from controlplane.setup_key import setup_key
from controlplane.whatif_policy import read_policy
from store.measurements import CostTable
from store.records import EngineRecord
from store.session_reader import SessionFile
from store.session_writer import SessionWriter
from tests.controlplane_rig import ENGINE, control_plane, embedded_engine, settings_of, until
from tests.controlplane_script import config
from tests.session_parts import Recorded
from tests.whatif_study import run as really_run
from tests.whatif_study import trial


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recordings of the embedded engine in virtual time, under two policies."""
    folder = tmp_path_factory.mktemp("simulated")
    found = []
    given = trial(3)
    for name, policy in (("one", given.one), ("other", given.other)):
        ran = really_run(given, policy, seed=5)
        path = folder / f"{name}.specdeck"
        with SessionWriter.create(path, {"engine_id": "sim", "name": name}) as writer:
            for tick in ran.ticks:
                writer.add_tick(tick)
            writer.add_record(ran.config.policy)
            writer.add_record(
                EngineRecord(engine_id="sim", url="", facts=ran.config.facts, added_utc_ms=0)
            )
            key = setup_key(ran.config.facts)
            writer.add_record(
                CostTable(setup_key=key, source="table", created_utc_ms=0, costs=ran.config.costs)
            )
        found.append(path)
    return found


def test_verify_exits_with_0_or_6(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Recorded(config=config())
    for load in [1] * 5 + [40] * 10:
        recorded.see(load)
    good = recorded.write(tmp_path / "good.specdeck")
    recorded.ticks[3] = recorded.ticks[3].model_copy(update={"desired": "off"})
    bad = recorded.write(tmp_path / "bad.specdeck")
    assert sessions_cli.run_replay([str(good), "--verify"]) == 0
    assert "identical: 15 of 15 verdicts verified" in capsys.readouterr().out
    assert sessions_cli.run_replay([str(bad), "--verify", "--json"]) == 6
    assert json.loads(capsys.readouterr().out)["differences"][0]["field"] == "desired"
    assert sessions_cli.run_replay([str(tmp_path / "none"), "--verify"]) == 5
    assert "does not exist" in capsys.readouterr().err


def test_what_if_prints_both_sides_and_what_it_cannot_know(
    simulated: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = [str(simulated[0]), "--set", "boundaries.1.up_at=200", "--out", str(tmp_path / "p.toml")]
    assert sessions_cli.run_what_if(argv) == 0
    told = capsys.readouterr().out
    assert "first difference" in told
    assert "est." in told
    assert "cannot know: the load is taken as recorded" in told
    assert read_policy(tmp_path / "p.toml").kind == "hysteresis"
    assert sessions_cli.run_what_if([*argv[:1], "--load", "arrivals", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    low, high = found["what_if"]["estimate"]["low"], found["what_if"]["estimate"]["high"]
    assert low < found["recorded"]["estimate"]["tok_s"] < high
    assert sessions_cli.run_what_if([str(simulated[0]), "--set", "nothing=1"]) == 5


def test_a_grid_finds_thresholds_and_writes_them_for_shadow(
    simulated: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "best.toml"
    files = [str(path) for path in simulated]
    argv = [*files, "--grid", "boundaries.0.up_at=8:56:16", "--grid", "up_hold_s=0,2"]
    assert sessions_cli.run_what_if([*argv, "--hold-out", "0.5", "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["points"] + found["left_out"] == 8
    assert found["best"]["regret"] <= found["recorded"]["regret"] + 0.05
    assert len(found["sessions"]) == len(found["sessions_held_out"]) == 1
    assert "--stance shadow" in out.read_text()
    assert read_policy(out).model_dump(mode="json") == found["best"]["policy"]


def test_two_sessions_are_compared_at_the_same_load(
    simulated: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, other = (str(path) for path in simulated)
    assert sessions_cli.run_compare([one, other]) == 0
    assert "switches per hour" in capsys.readouterr().out
    assert sessions_cli.run_compare([one, one, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows
    assert not any(row["differs"] for row in rows)
    recorded = Recorded(config=config())
    recorded.see(1)
    foreign = recorded.write(tmp_path / "foreign.specdeck")
    assert sessions_cli.run_compare([one, str(foreign)]) == 5
    assert "different setups" in capsys.readouterr().err
    assert sessions_cli.run_compare([one, str(foreign), "--anyway"]) == 0
    assert "warning: the sessions have different setups" in capsys.readouterr().out


def test_the_report_is_one_page_without_requests(simulated: list[Path]) -> None:
    with SessionFile.open(simulated[0]) as session:
        page = render(session, "0")
    assert page.startswith("<!doctype html>")
    for outside in ("http://", "https://", "<script", "src=", "@import", "url("):
        assert outside not in page
    for part in ("In short", "Time line", "Decisions", "Step-cost table", "<svg"):
        assert part in page


async def test_a_server_is_recorded_without_a_control_plane(tmp_path: Path) -> None:
    path = tmp_path / "watched.specdeck"
    with embedded_engine() as engine:
        before = engine.state()["generation"]
        ticks = await record(engine.url, path, engine_id="w", seconds=1.5, poll_s=0.1)
        assert engine.state()["generation"] == before
        assert engine.state()["claim"] is None
        stopped = asyncio.create_task(
            record(engine.url, tmp_path / "cut.specdeck", engine_id="w", seconds=None, poll_s=0.1)
        )
        await asyncio.sleep(0.5)
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)
    with SessionFile.open(path) as session:
        found = verify(session)
        assert session.complete
        assert found.identical
        assert 10 <= found.ticks == ticks
        assert list(session.scrapes())
    with SessionFile.open(tmp_path / "cut.specdeck") as session:
        assert session.complete


async def test_a_running_control_plane_names_stops_and_hands_out_sessions(tmp_path: Path) -> None:
    with embedded_engine() as engine:
        settings = settings_of(tmp_path, engine.url)
        async with control_plane(settings) as running, running.client() as client:
            runner = running.service.runner(ENGINE)
            await until(lambda: runner.counts.polls > 5)
            started = await client.start_session(
                StartSession(engine_id=ENGINE, name="load test", author="op1")
            )
            marker = await client.add_marker(
                ENGINE, MarkerRequest(kind="deploy", text="v2", author="hook")
            )
            polls = runner.counts.polls
            await until(lambda: runner.counts.polls > polls + 8)
            await client.stop_session(started.id, StopSession(author="op1"))
            (listed,) = await client.sessions()
            assert (listed.name, listed.complete) == ("load test", True)
            assert len(await client.session_ticks(started.id)) >= 8
            body = await client.session_file(started.id, redact=True)
            entries = running.service.store.audit()
    assert {"session.start", "session.stop", "marker.add"} <= {one.action for one in entries}
    path = tmp_path / "downloaded.specdeck"
    path.write_bytes(body)
    with SessionFile.open(path) as session:
        found = verify(session)
        assert found.identical
        assert found.verified >= 8
        assert [one.seq for one in session.markers()] == [marker.seq]
        assert "op1" not in str(session.markers())
    database = str(tmp_path / "deck.sqlite3")
    out = tmp_path / "rows.csv"
    argv = ["export", "load test", "--database", database, "--format", "csv", "--out", str(out)]
    assert await asyncio.to_thread(sessions_cli.run_record, argv) == 0
    assert out.read_text().startswith("seq,at_utc_ms")
    into = ["import", str(path), "--database", str(tmp_path / "new.db"), "--engine", "again"]
    assert await asyncio.to_thread(sessions_cli.run_record, into) == 0
