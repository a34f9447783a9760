"""A day at two ticks a second: the file's size, and how long it takes to use it.

Times of the computations are processor seconds, of the grid per core: they do not depend on what
else the machine does.  Wall times are kept beside them.
"""

from __future__ import annotations

import gc
import json
import platform
import random
import resource
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from textual.message import Message

from console.replay_feed import ReplayFeed
from console.replay_messages import ReplayMoved
from console.replay_process import ReplayProcess
from controlplane.client import ControlPlaneClient
from controlplane.replay_player import Tape
from controlplane.sessions_inputs import CHECKPOINT_STEPS, Intake, dump_state
from controlplane.sessions_messages import ReplayRequest
from controlplane.whatif_answer import answer, subject_of, with_policy
from controlplane.whatif_estimate import LoadModel
from controlplane.whatif_grid import parse_axis, search
from controlplane.whatif_policy import edited
from engine_patch.contract_words import OffKind
from engine_patch.embedded.table import load
from engine_patch.tier import OFF, Boundary
from store.db import Store
from store.policies import HysteresisPolicy
from store.records import CommandOutcome, ControlInput, InputKind, OutcomeKind, RawScrape
from store.session_reader import SessionFile
from store.session_writer import SessionWriter
from tests.controlplane_script import Script, config, facts
from tests.store_records import busy_day

RESULTS = Path(__file__).parent / "results" / "session_day.json"
DAY = 172_800
STEP = 20_000
TIERS = ("s3k1d4", "s1k1d2", OFF)

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]


def _config() -> object:
    policy = HysteresisPolicy(
        tiers=TIERS,
        boundaries=(Boundary(up_at=16, down_at=12), Boundary(up_at=48, down_at=36)),
    )
    table = load("fa3")
    costs = tuple(
        cost for tier in TIERS for cost in table.costs(tier, OffKind.PLAIN_PATH, 2.0, 256)
    )
    return config(policy, engine=facts(*TIERS)).model_copy(update={"costs": costs})


def _metrics(chance: random.Random, counters: list[int]) -> str:
    """A /metrics page as long as SGLang's: 1,400 samples, some of which move."""
    lines = []
    for index in range(len(counters)):
        if index % 7 == 0:
            counters[index] += chance.randint(0, 2000)
        lines.append(
            f'sglang:series_{index // 14}_bucket{{engine_type="unified",le="{index % 14}",'
            f'model_name="meta-llama/Llama-3.1-8B",tp_rank="0"}} {counters[index]}.0'
        )
    return "\n".join(lines)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A day as it is recorded: ticks, inputs, and scrapes every 30 s from two endpoints."""
    path = tmp_path_factory.mktemp("day") / "day.specdeck"
    chance = random.Random(11)
    base = _config()
    script = Script()
    for _ in range(20):
        script.see(30)
    state = dump_state(script.state)
    counters = [chance.randint(0, 10**6) for _ in range(1400)]
    ticks = busy_day(STEP)
    seq = 0
    with SessionWriter.create(path, {"engine_id": "h200-0", "name": "day"}) as writer:
        writer.add_input(_input(0, InputKind.CONFIG, base.model_dump_json()))  # type: ignore[attr-defined]
        while seq < DAY:
            for tick in ticks:
                seq += 1
                if seq > DAY:
                    break
                shift = (seq - 1) // STEP * STEP * 500
                seen = tick.observation
                moved = seen.model_copy(
                    update={
                        "seq": seq,
                        "at_utc_ms": seen.at_utc_ms + shift,
                        "at_mono_ms": seen.at_mono_ms + shift,
                    }
                )
                writer.add_tick(tick.model_copy(update={"observation": moved}))
                if seq % CHECKPOINT_STEPS == 0:
                    writer.add_input(_input(seq, InputKind.CHECKPOINT, state))
                if seq % 30 == 0:  # a lease is renewed every 15 s
                    outcome = CommandOutcome(
                        kind=OutcomeKind.ACCEPTED,
                        epoch=1,
                        generation=seq,
                        at_utc_ms=moved.at_utc_ms,
                        at_mono_ms=moved.at_mono_ms,
                        latency_ms=chance.random() * 10,
                    )
                    body = outcome.model_dump_json(exclude_defaults=True)
                    writer.add_input(_input(seq, InputKind.OUTCOME, body))
                if seq % 60 == 0:
                    for place, text in (
                        ("/metrics", _metrics(chance, counters)),
                        ("/speculation", moved.model_dump_json() * 2),
                    ):
                        writer.add_scrape(
                            RawScrape(
                                engine_id="h200-0",
                                seq=seq,
                                at_utc_ms=moved.at_utc_ms,
                                path=place,
                                text=text,
                            )
                        )
            writer.commit()
    yield path
    shutil.rmtree(path.parent)


def _input(seq: int, kind: InputKind, body: str) -> ControlInput:
    return ControlInput(engine_id="h200-0", after_seq=seq, kind=kind, at_utc_ms=seq, body=body)


def _keep(**found: float) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known |= {"date": datetime.now(UTC).date().isoformat(), "python": platform.python_version()}
    known |= {key: round(value, 5) for key, value in found.items()}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    print(found)


def test_a_day_fits_in_60_mb_opens_and_seeks_at_once(day: Path) -> None:
    size = day.stat().st_size / 1e6
    begun = time.monotonic()
    with SessionFile.open(day) as session:
        assert session.count() == DAY
        opened = time.monotonic() - begun
        slowest = 0.0
        for seq in random.Random(1).sample(range(1, DAY), 200):
            begun = time.monotonic()
            tick = session.tick(seq)
            slowest = max(slowest, time.monotonic() - begun)
            assert tick is not None
            assert tick.observation.seq == seq
        begun = time.monotonic()
        Tape.of(session.track())
        line = time.monotonic() - begun
    _keep(size_mb=size, open_s=opened, slowest_seek_s=slowest, time_line_s=line)
    assert size < 60
    assert opened < 1
    assert slowest < 0.1


async def test_the_console_opens_a_day_and_seeks_in_it_at_once(day: Path) -> None:
    # As the console does; what made the day is no console's garbage.
    gc.collect()
    gc.freeze()
    begun = time.monotonic()
    process = await ReplayProcess.start(day)
    ready = time.monotonic() - begun
    try:
        async with ControlPlaneClient(process.url) as client:
            shown: list[Message] = []
            feed = ReplayFeed(client, shown.append)
            feed.want_strip(58)
            begun = time.monotonic()
            await feed.turn()
            first = time.monotonic() - begun
            took: list[float] = []
            server = psutil.Process(process.pid)
            used = time.process_time() + sum(server.cpu_times()[:2])
            for seq in random.Random(1).sample(range(1, DAY), 100):
                feed.order(ReplayRequest(seq=seq))
                begun = time.monotonic()
                await feed.turn()
                took.append(time.monotonic() - begun)
                moved = shown[-1]
                assert isinstance(moved, ReplayMoved)
                assert moved.board.tick is not None
                assert moved.board.tick.observation.seq == seq
            used = time.process_time() + sum(server.cpu_times()[:2]) - used
    finally:
        await process.stop()
    took.sort()
    median, most = took[len(took) // 2], took[-1]
    _keep(
        console_ready_wall_s=ready,
        console_first_picture_wall_s=first,
        console_seek_wall_s=median,
        console_slowest_seek_wall_s=most,
        console_seek_s=used / len(took),
    )
    assert used / len(took) < 0.1


def test_what_if_over_a_day_takes_less_than_ten_seconds(day: Path) -> None:
    begun, used = time.monotonic(), time.process_time()
    with SessionFile.open(day) as session:
        subject = subject_of(session)
    policy = edited(subject.config.policy.policy, ["boundaries.0.up_at=24"])
    found = answer(subject, with_policy(subject.config, policy), LoadModel.RECORDED)
    took = time.process_time() - used
    _keep(what_if_s=took, what_if_wall_s=time.monotonic() - begun)
    assert found.samples == DAY
    assert found.what_if.estimate.tok_s is not None
    assert took < 10


def test_a_grid_of_200_points_takes_less_than_six_minutes_on_two_cores(day: Path) -> None:
    with SessionFile.open(day) as session:
        base = subject_of(session).config.policy.policy
    axes = [
        parse_axis("boundaries.0.up_at=14:32:2"),
        parse_axis("up_hold_s=0,2,4,8"),
        parse_axis("min_dwell_s=1,2,5,10,20"),
    ]
    begun = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = search([day], base, axes, workers=2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 2
    _keep(grid_200_s=took, grid_200_wall_s=time.monotonic() - begun)
    assert found.points == 200
    assert took < 360


def test_recording_takes_less_than_a_hundredth_of_the_time(tmp_path: Path) -> None:
    ticks = busy_day(2000)
    script, intake = Script(), Intake("h200-0")
    script.see(30)
    with Store.open(tmp_path / "s.db") as store:
        used = time.process_time()
        for tick in ticks:
            seen = tick.observation
            intake.stepped(seen.seq, seen.at_utc_ms, script.state)
            store.write([tick, *intake.take()]).result()
        each = (time.process_time() - used) / len(ticks)
    _keep(recording_ms_per_tick=each * 1000, recording_share_at_2_hz=each * 2)
    assert each * 2 < 0.01
