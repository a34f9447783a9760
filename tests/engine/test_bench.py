"""A small benchmark of a real SGLang on the CPU, from the command line to the verdict."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.bench_records import BenchFile
from controlplane.clock import SystemClock
from controlplane.load_flow import hello
from controlplane.load_plan import Target
from controlplane.load_prompts import make
from controlplane.load_reports import FlowSettings
from tests.controlplane_rig import Deck, deck
from tests.engine.cpu_engine import CpuEngine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]

TIERS = "off,s3k1d4"
IDS = "ids:500"
"""The tiny model has 512 tokens."""
SPECDECK = Path(sys.executable).parent / "specdeck"


@pytest.fixture(scope="module")
def engine(work: Path) -> Iterator[CpuEngine]:
    with CpuEngine(work, "bench", tiers=TIERS, args=("--skip-tokenizer-init",)) as made:
        yield made


@pytest.fixture(scope="module")
def plane(engine: CpuEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deck]:
    folder = tmp_path_factory.mktemp("bench")
    config = folder / "specdeck.toml"
    config.write_text(
        f'database = "{folder / "deck.sqlite3"}"\n'
        f'[[engines]]\nid = "cpu"\nurl = "{engine.url}"\npoll_s = 0.2\nstance = "shadow"\n'
    )
    with deck(["--config", str(config)], os.environ) as running:
        end = time.monotonic() + 60
        while httpx.get(f"{running.url}/v1/engines/cpu").json()["engine"]["facts"] is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        yield running


def bench(plane: Deck, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``specdeck bench`` against the control plane."""
    return subprocess.run(
        [SPECDECK, "bench", *arguments, "--url", plane.url],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def state(engine: CpuEngine) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{engine.url}/speculation").json()
    return answer


def test_a_small_sweep_measures_both_tiers_and_gives_the_engine_back(
    engine: CpuEngine, plane: Deck, tmp_path: Path
) -> None:
    before = state(engine)
    out = tmp_path / "results.json"
    begun = SystemClock().utc_ms()
    done = bench(
        plane, "cpu", "--concurrency", "1,4", "--budget", "30s", "--window", "1s",
        "--in", "16", "--out", "48", "--prompts", IDS, "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s3k1d4" in done.stdout
    file = BenchFile.model_validate_json(out.read_bytes())
    assert file.complete
    assert not file.simulated
    first = [(point.concurrency, point.tier, point.repeat) for point in file.points[:8]]
    assert first == [
        (1, "off", 1), (1, "s3k1d4", 1), (1, "s3k1d4", 2), (1, "off", 2),
        (4, "off", 1), (4, "s3k1d4", 1), (4, "s3k1d4", 2), (4, "off", 2),
    ]  # fmt: skip
    for point in file.points:
        assert point.tok_s > 1
        assert point.at_utc_ms is not None
        assert point.at_utc_ms > begun
        # A client whose request is on its way or in its prefill is not in the decode batch: on a
        # slow machine that is a good part of the time of so short an answer.
        assert point.running is not None
        assert point.concurrency / 4 < point.running <= point.concurrency
        assert not [reason for reason in point.not_comparable if "first token" in reason]
        assert point.failed == 0
        if point.tier == "off":
            assert point.off_kind is not None
            assert point.accept_length is None
        else:
            # The tiny drafter reads its target's own next-token table: often right, not always.
            assert point.accept_length is not None
            assert 1.5 < point.accept_length <= 4.0
        assert point.engine_version == "0.5.23"
        assert point.cap == 16
        assert point.ttft_s is not None
    for alone, four in zip(file.points[:4], file.points[4:8], strict=True):
        assert four.running is not None
        assert alone.running is not None
        assert four.running > alone.running + 0.5
    after = state(engine)
    assert after["boot_id"] == before["boot_id"]
    analysed = bench_file(out)
    assert analysed["crossover"].keys() >= {"low", "high", "reason"}
    told = [*analysed["points"], *analysed["not_comparable"]]
    assert {point["concurrency"] for point in told} >= {1, 4}
    # On a slow machine a window may not hold a request; such a run is left out, and says so.
    for point in analysed["points"]:
        assert point["interval"] or point["resolution"].startswith("not resolved")
    assert analysed["verdict"]


def bench_file(out: Path) -> dict[str, Any]:
    done = subprocess.run(
        [SPECDECK, "bench", "analyze", str(out), "--json"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_plain_and_a_speculating_server_take_turns(
    engine: CpuEngine, work: Path, tmp_path: Path
) -> None:
    """The plain one is SGLang without the plugin; the lengths of requests are those of a file."""
    out, lengths = tmp_path / "servers.json", tmp_path / "lengths.json"
    lengths.write_text("[[8, 16], [16, 24]]")
    with CpuEngine(
        work, "bench-plain", algorithm=None, plugin=False, args=("--skip-tokenizer-init",)
    ) as plain:
        done = subprocess.run(
            [
                SPECDECK, "bench", "servers", "--plain", plain.url, "--spec", engine.url,
                "--concurrency", "2", "--repeats", "1", "--budget", "15s", "--window", "1s",
                "--prompts", f"lengths:500:{lengths}", "--json", str(out),
            ],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    file = BenchFile.model_validate_json(out.read_bytes())
    assert file.points, done.stderr
    assert len(file.client) == 2
    for point in file.points:
        assert point.tier in ("plain", "s3k1d4")
        assert point.failed == 0
        assert (point.input_len, point.output_len) == (None, None)
        assert (point.accept_length is None) == (point.tier == "plain")


def test_sglang_sends_answers_in_the_parts_that_the_load_asks_for(engine: CpuEngine) -> None:
    prompt = make(IDS, 8, 40, 1).next()
    sent: dict[int, list[int]] = {}
    for interval in (1, 8):
        body = prompt.body(40, interval)
        with httpx.stream(
            "POST",
            f"{engine.url}/generate",
            content=body,
            headers={"content-type": "application/json"},
            timeout=60,
        ) as answer:
            lines = [line for line in answer.iter_lines() if line.startswith("data: {")]
        counts = [json.loads(line[6:])["meta_info"]["completion_tokens"] for line in lines]
        sent[interval] = [after - before for before, after in itertools.pairwise([0, *counts])]
        assert counts[-1] == 40
    assert len(sent[8]) < len(sent[1])
    # The first token at once, whatever is left at the end.
    assert all(part >= 8 for part in sent[8][1:-1])


def test_token_ids_are_sent_where_the_server_has_no_tokenizer(engine: CpuEngine) -> None:
    target = Target.parse(engine.url)
    settings = FlowSettings(url=engine.url, prompts=IDS, input_len=8, output_len=4)
    prompts, said = asyncio.run(hello(target, settings))
    assert prompts is not None
    assert said.problem == ""
    assert said.prompts == "random token ids, 8 tokens in, 4 ± 1 out"
    # Nobody asked for ids here: those of the fall-back exist in every vocabulary.
    prompts, said = asyncio.run(hello(target, FlowSettings(url=engine.url, output_len=4)))
    assert prompts is not None, said.problem
    assert "the server takes no text" in said.prompts
    assert httpx.get(f"{engine.url}/health", timeout=20).status_code == 200
