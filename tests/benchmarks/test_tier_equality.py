"""Every case of switching under load, on real servers on the CPU: outputs equal the plain server's.

``tests/engine/test_plugin_tiers.py``, ``_overlap`` and ``_faults`` run a part of it.  Run on
purpose, about 10 minutes:

    python -m pytest -m benchmark tests/benchmarks/test_tier_equality.py

``SPECDECK_ENGINE_FOLDERS`` names unpacked wheels of other SGLang versions, joined by colons; with
it, one case runs on each of them as well, on both loops.  Results: ``results/tier_equality.json``.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.engine import kept_kv, tier_checks, tier_rig
from tests.engine.conftest import MANY
from tests.engine.cpu_engine import CpuEngine, make_models
from tests.engine.plugin_client import PluginClient
from tests.engine.tier_rig import ALL, MORE, RETRACTIONS, WIDE, Reference, compare, tier_server

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

RESULT = Path(__file__).parent / "results/tier_equality.json"
FOLDERS_VARIABLE = "SPECDECK_ENGINE_FOLDERS"
JOBS = 200
CONCURRENCY = 16
SAMPLES = 4000
CHUNKS = ("--chunked-prefill-size", "64")
TIGHT = ("--max-total-tokens", "1500")
CASES: dict[str, dict[str, Any]] = {
    "eagle3": {"tiers": MORE},
    "eagle": {"tiers": ALL, "algorithm": "EAGLE"},
    "chunked prefill": {"tiers": ALL, "args": CHUNKS},
    "wide": {"tiers": WIDE},
    "retraction": {"tiers": MORE, "args": TIGHT, "env": RETRACTIONS},
    "overlap": {"tiers": MORE, "overlap": True},
    "overlap, retraction": {
        "tiers": WIDE, "overlap": True, "args": TIGHT, "env": RETRACTIONS,
    },
    "overlap, reserve for all": {
        "tiers": WIDE, "overlap": True, "env": {"SPECDECK_RESERVE": "all"},
    },
    "SGLang's own off": {"tiers": MORE, "env": {"SPECDECK_OFF": "upstream"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and logs."""
    folder = tmp_path_factory.mktemp("equality")
    make_models(folder)
    return folder


@pytest.fixture(scope="module")
def known(work: Path) -> Reference:
    """What the plain server answers to 200 requests."""
    return tier_rig.reference(work, seed=11, count=JOBS, samples=SAMPLES)


def _record(section: str, name: str, value: object) -> None:
    """Add to the results; a run of single cases leaves the others as they were."""
    found: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    found["setup"] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "model": "tiny random Llama in float32, EAGLE and EAGLE-3 drafters (tests/engine)",
        "jobs": JOBS,
        "concurrency": CONCURRENCY,
    }
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    found.setdefault(section, {})[name] = {"at": now, "result": value}
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


def _file_name(case: str) -> str:
    return case.replace(" ", "-").replace(",", "").replace("'", "")


@pytest.mark.parametrize("case", CASES)
def test_outputs_equal_the_plain_servers(work: Path, known: Reference, case: str) -> None:
    begun = time.monotonic()
    with tier_server(work, _file_name(case), **CASES[case]) as server:
        version = server.client.state().versions.engine_version
        report = compare(server, known, seed=len(case), concurrency=CONCURRENCY)
    _record(
        "equality",
        case,
        {"sglang": version, **asdict(report), "seconds": round(time.monotonic() - begun, 1)},
    )
    assert report.wrong == []
    assert report.used == 0
    assert report.switches > 40
    assert report.aborted > 0


@pytest.mark.parametrize("case", ["chunked prefill", "retraction", "overlap, retraction"])
def test_what_off_rounds_keep_is_there_when_it_is_read(
    work: Path, known: Reference, case: str
) -> None:
    """Each row against SGLang's whole draft-extend, while requests come, go, abort and retract."""
    with tier_server(work, f"kept-{_file_name(case)}", kept=True, **CASES[case]) as server:
        report = compare(
            server,
            known,
            seed=len(case),
            concurrency=CONCURRENCY,
            flavours=("keep",),
            rest_s=0.3,
        )
        counts = server.kept()
    _record("kept", case, {**asdict(counts), "retractions": report.retractions})
    assert report.wrong == []
    assert counts.drafts > 500
    assert counts.calls < counts.rounds


@pytest.mark.parametrize("fault", tier_checks.FAULTS)
def test_every_fault_is_noticed(work: Path, known: Reference, fault: tier_checks.Fault) -> None:
    noticed = tier_rig.notices(work, f"fault-{fault}", known, fault)
    _record("faults", fault, noticed[:300])
    assert noticed


@pytest.mark.parametrize("case", ["plain again", "switching", "fault length"])
def test_sampled_outputs_come_from_the_plain_servers_distribution(
    work: Path, known: Reference, case: str
) -> None:
    """4,000 answers of 4 tokens; false alarms: 3 in 10,000 runs.  A wrong length must be seen.

    A relay that is too narrow is not: drafts then differ and the target verifies them, so what is
    drawn stays right (that fault ends in a mismatch of shapes, see above).
    """
    if case == "plain again":
        with CpuEngine(work, "plain-sampled", algorithm=None, plugin=False) as engine:
            drawn = tier_rig.sampled(engine.url, SAMPLES)
    elif case == "switching":
        with tier_server(work, "sampled", tiers=MORE, overlap=True) as server:
            with tier_rig.commands(server, seed=6):
                drawn = tier_rig.sampled(server.engine.url, SAMPLES)
            assert server.client.replica().switches > 20
    else:
        with tier_server(work, "sampled-fault", tiers=ALL, fault="length") as server:
            server.client.command("off")
            server.client.wait_runs("off")
            drawn = tier_rig.sampled(server.engine.url, SAMPLES)
    found = tier_rig.spreads(known.drawn, drawn)
    _record("sampled", case, [asdict(spread) for spread in found])
    assert all(spread.same for spread in found) is (case != "fault length")


def _accept_lengths(client: PluginClient) -> list[float]:
    prompts = [f"how well is this drafted {number}" for number in range(8)]
    answers = client.engine.generate(prompts, new_tokens=160)
    return [round(answer["meta_info"]["spec_accept_length"], 4) for answer in answers]


@pytest.mark.parametrize("tier", ["s1k1d2", "s3k1d4", "s3k2d4"])
def test_a_tier_drafts_exactly_as_well_as_a_server_launched_with_it(work: Path, tier: str) -> None:
    steps, topk, tokens = tier[1], tier[3], tier[5]
    shape = ("--speculative-num-steps", steps, "--speculative-eagle-topk", topk,
             "--speculative-num-draft-tokens", tokens)  # fmt: skip
    with (
        CpuEngine(work, f"static-{tier}", adaptive=False, args=shape) as engine,
        PluginClient(engine) as client,
    ):
        static = _accept_lengths(client)
    with tier_server(work, f"fixed-{tier}", tiers=MORE) as server:
        server.client.command("on", tier=tier)
        server.client.wait_runs(tier)
        tiered = _accept_lengths(server.client)
    _record("accept lengths", tier, {"static": static, "tier": tiered})
    assert tiered == static


def test_off_holds_fewer_slots_than_the_widest_tier(work: Path, known: Reference) -> None:
    highest: dict[str, int] = {}
    for reserve in ("next", "all"):
        env = {"SPECDECK_RESERVE": reserve}
        with tier_server(work, f"off-{reserve}", tiers=WIDE, env=env) as server:
            client = server.client
            client.command("off")
            client.wait_runs("off")
            prompts = [job.prompt for job in known.jobs[:16]]
            with client.load(prompts, clients=16, new_tokens=100):
                client.wait(lambda c=client: c.replica().running == 16, "16 running", 30)  # type: ignore[misc]
                seen = []
                for _ in range(60):
                    load = client.http.get("/v1/loads").json()["loads"][0]
                    seen.append(load["num_used_tokens"])
                    time.sleep(0.05)
            highest[reserve] = max(seen)
    _record("highest used slots while off", "16 requests of 100 tokens", highest)
    # Twice alloc_len: 2 against 40 slots for each of 16 requests.  The requests' own lengths differ
    # between the two peaks, so half of it must show; the exact slots are asserted by the suite.
    assert highest["all"] - highest["next"] > 16 * 38 / 2


other_versions = pytest.mark.parametrize(
    "folder", [f for f in os.environ.get(FOLDERS_VARIABLE, "").split(":") if f]
)


loops = pytest.mark.parametrize("overlap", [False, True], ids=["ordinary", "overlap"])


@other_versions
@loops
def test_what_another_version_keeps_is_there_when_it_is_read(
    work: Path, folder: str, overlap: bool
) -> None:
    path = Path(folder)
    name = f"kept-{path.name}-{overlap}"
    with tier_server(work, name, kept=True, overlap=overlap, paths=[path]) as server:
        version = server.client.state().versions.engine_version
        kept_kv.read_by_prefill(server.client)
        kept_kv.read_by_drafts(server.client, MANY)
        counts = server.kept()
    _record("kept", _on_loop(version, overlap), asdict(counts))
    assert min(counts.prefills, counts.drafts) > 90
    assert counts.calls < counts.rounds / 2
    assert counts.strided == 0


@other_versions
@loops
def test_another_version_of_sglang(work: Path, folder: str, overlap: bool) -> None:
    path = Path(folder)
    if list(path.glob("sglang-0.5.17.dist-info")):
        pytest.skip("SGLang 0.5.17 runs no grammars on a CPU")
    known = tier_rig.reference(work, seed=13, count=70, paths=[path])
    name = f"v-{path.name}-{overlap}"
    with tier_server(work, name, tiers=MORE, overlap=overlap, paths=[path]) as server:
        version = server.client.state().versions.engine_version
        report = compare(server, known, seed=5, concurrency=CONCURRENCY)
        slots = tier_checks.slots(server.slots)
    _record("versions", _on_loop(version, overlap), asdict(report))
    assert report.wrong == []
    assert (report.used, report.switches > 20) == (0, True)
    assert not overlap or "lengths, known" in slots


def _on_loop(version: str | None, overlap: bool) -> str:
    return f"{version}, overlap" if overlap else str(version)
