"""Benchmarks of a live embedded engine: measured, cancelled, refused, interrupted, killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.benchrun_apply import policy_request
from controlplane.benchrun_messages import BenchRequest, BenchState, BenchStatus, CancelRequest
from controlplane.client import ControlPlaneClient, RefusedError
from controlplane.messages import OverrideRequest, ReleaseRequest, TakeoverRequest
from engine_patch.contract_words import Mode
from store.policies import Stance
from tests.controlplane_rig import (
    ENGINE,
    EmbeddedEngine,
    Running,
    control_plane,
    deck,
    embedded_engine,
    settings_of,
    until,
)

TIERS = ("off", "s3k1d4")


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with embedded_engine("--tiers", ",".join(TIERS)) as running:
        yield running


def wanted(**changes: Any) -> BenchRequest:
    """A benchmark of about a second per run."""
    given: dict[str, Any] = {
        "concurrency": (2,),
        "repeats": 1,
        "budget_s": 20.0,
        "window_s": 0.25,
        "input_len": 16,
        "output_len": 32,
        "author": "op1",
    }
    return BenchRequest(**given | changes)


async def watched(
    client: ControlPlaneClient,
    begun: BenchStatus,
    enough: Callable[[BenchStatus], object] = lambda status: status.ended_utc_ms,
) -> list[BenchStatus]:
    """Its statuses from the stream until ``enough``, or its end."""
    seen: list[BenchStatus] = []
    async with aclosing(client.benchmark_progress(ENGINE, begun.id)) as stream:
        async for status in stream:
            seen.append(status)
            if enough(status):
                break
    return seen


async def ended(client: ControlPlaneClient, begun: BenchStatus) -> BenchStatus:
    """Its status once it ended."""
    return (await watched(client, begun))[-1]


async def first_point(client: ControlPlaneClient, begun: BenchStatus) -> BenchStatus:
    """Its status once something was measured."""
    return (await watched(client, begun, lambda status: status.points))[-1]


async def reached(running: Running) -> None:
    """Wait until the engine has answered."""
    await until(lambda: running.service.runner(ENGINE).pilot.facts is not None)


async def contact(client: ControlPlaneClient) -> None:
    """The same for a control plane in another process."""
    async for _ in client.events(ENGINE):
        if (await client.engine(ENGINE)).engine.facts is not None:
            return


async def test_every_tier_is_measured_at_every_load_and_the_engine_is_as_it_was(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await reached(running)
        before = (await client.engine(ENGINE)).policy
        status = await client.start_benchmark(
            ENGINE, wanted(concurrency=(1, 4), repeats=2, budget_s=10.0)
        )
        assert status.state is BenchState.RUNNING
        seen = await watched(client, status)
        status = seen[-1]
        lefts = [one.left_s for one in seen if one.left_s is not None]
        assert status.state is BenchState.DONE, status.message
        assert status.simulated
        assert lefts == sorted(lefts, reverse=True)
        assert any(one.phase.startswith("warming up") for one in seen)

        first = [(p.concurrency, p.tier, p.repeat) for p in status.points[:8]]
        assert first == [
            (1, "off", 1), (1, "s3k1d4", 1), (1, "s3k1d4", 2), (1, "off", 2),
            (4, "off", 1), (4, "s3k1d4", 1), (4, "s3k1d4", 2), (4, "off", 2),
        ]  # fmt: skip
        for point in status.points:
            assert point.tok_s > 50
            assert point.cap == 256
            assert point.ttft_s is not None
            assert (point.accept_length is None) == (point.tier == "off")
            assert point.seconds > 0.05
            assert (point.input_len, point.output_len) == (16, 32)
        # A busy machine ends a window late, not all of them.
        windows = [point.seconds for point in status.points]
        assert statistics.median(windows) == pytest.approx(0.25, abs=0.2)
        assert sum(windows) < 10
        assert len(status.client) == 1
        assert "load generator: at most" in status.client[0]

        assert await client.override(ENGINE) is None
        assert (await client.engine(ENGINE)).policy == before
        await until(lambda: engine.state()["replicas"][0]["running"] == 0)
        await until(lambda: engine.state()["desired_tier"] == "s3k1d4")

        stored = running.service.store.benchmark_points(status.setup_key)
        assert len(stored) == len(status.points)
        table = running.service.store.cost_table(status.setup_key)
        assert table is not None
        assert {cost.tier for cost in table.costs} == set(TIERS)
        assert "live step times" in table.source
        words = [entry.action for entry in await client.audit(200)]
        assert words.count("benchmark.start") == words.count("benchmark.end") == 1

        file = await client.benchmark_file(ENGINE, status.id)
        assert file.points == status.points
        assert file.complete
        assert (await client.benchmark_analysis(ENGINE, status.id)).verdict
        if not any(point.not_comparable for point in status.points):
            # A busy machine makes a simulated engine late; then there is nothing to propose from.
            await applied(client, status)


async def test_a_window_goes_on_until_it_has_seen_a_whole_request(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await reached(running)
        asked = wanted(concurrency=(1,), tiers=("off",), output_len=200, window_s=0.2)
        status = await ended(client, await client.start_benchmark(ENGINE, asked))
        (point,) = status.points
        assert point.seconds is not None
        assert point.seconds > 2 * 0.2
        # A busy machine makes the engine slower than it was in the window's first part.
        short = any("part of a request" in text for text in point.not_comparable)
        assert short or point.seconds * point.tok_s > 0.8 * 200

        asked = asked.model_copy(update={"output_len": 20_000, "budget_s": 6.0})
        status = await ended(client, await client.start_benchmark(ENGINE, asked))
        (point,) = status.points
        assert any("saw only a part of a request" in text for text in point.not_comparable)
        said = [*status.notes, *point.not_comparable]
        assert any("first request had ended" in text or "first token" in text for text in said)


async def applied(client: ControlPlaneClient, status: BenchStatus) -> None:
    """Its proposal becomes a policy version with the benchmark's name."""
    proposal = await client.benchmark_proposal(ENGINE, status.id)
    present = (await client.engine(ENGINE)).policy
    assert present is not None
    request = policy_request(
        proposal, present, benchmark=status.id, stance=Stance.SHADOW, author="op1"
    )
    made = await client.set_policy(ENGINE, request)
    assert made.version == present.version + 1
    assert made.author == "bench op1"
    assert made.stance is Stance.SHADOW
    assert made.policy == request.policy
    assert status.id in made.reason
    with pytest.raises(RefusedError, match=f"version {made.version} by bench op1 is in force"):
        await client.set_policy(ENGINE, request)
    assert (await client.audit(5))[0].action == "policy.set"


async def test_what_an_earlier_control_plane_measured_is_still_listed(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, engine.url)
    async with control_plane(settings) as running, running.client() as client:
        await reached(running)
        one = await ended(client, await client.start_benchmark(ENGINE, wanted(tiers=("off",))))
        two = await client.start_benchmark(ENGINE, wanted(concurrency=(1, 2, 4, 8)))
        two = await first_point(client, two)
    assert one.state is BenchState.DONE
    async with control_plane(settings) as running, running.client() as client:
        await reached(running)
        found = {status.id: status for status in await client.benchmarks(ENGINE)}
        assert found[one.id].state is BenchState.DONE
        assert found[one.id].points == one.points
        assert found[two.id].state is BenchState.CANCELLED
        assert "the control plane, which ended" in found[two.id].message
        assert found[two.id].points[: len(two.points)] == two.points
        assert not (await client.benchmark_file(ENGINE, two.id)).complete
        assert await client.override(ENGINE) is None


async def test_a_cancelled_benchmark_lets_the_engine_go_at_once(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await reached(running)
        status = await client.start_benchmark(ENGINE, wanted(tiers=("off",), window_s=60.0))
        await until(lambda: engine.state()["mode"] == "off")
        held = await client.override(ENGINE)
        assert held is not None
        assert held.author == "bench op1"
        assert status.id in held.reason
        begun = time.monotonic()
        status = await client.cancel_benchmark(ENGINE, status.id, CancelRequest(author="op2"))
        assert time.monotonic() - begun < 20
        assert status.state is BenchState.CANCELLED
        assert status.message == "cancelled by op2"
        assert await client.override(ENGINE) is None
        await until(lambda: engine.state()["desired_tier"] == "s3k1d4", 2)
        await until(lambda: engine.state()["replicas"][0]["running"] == 0, 2)
        with pytest.raises(RefusedError, match="has ended already: cancelled"):
            await client.cancel_benchmark(ENGINE, status.id, CancelRequest(author="op2"))


async def test_it_is_refused_beside_traffic_unless_told_and_then_says_so_at_the_points(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await reached(running)
        engine.load(6)
        try:
            await until(lambda: engine.state()["replicas"][0]["running"] > 3)
            with pytest.raises(RefusedError, match=r"serves \d+ requests now.*allow_traffic"):
                await client.start_benchmark(ENGINE, wanted())
            assert await client.override(ENGINE) is None
            asked = wanted(allow_traffic=True, window_s=1.0, tiers=("off",))
            status = await ended(client, await client.start_benchmark(ENGINE, asked))
        finally:
            await asyncio.to_thread(engine.unload)
        assert status.state is BenchState.DONE, status.message
        assert any("requests of others ran beside it" in text
                   for point in status.points for text in point.not_comparable)  # fmt: skip


async def test_traffic_that_arrives_makes_it_give_way(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await reached(running)
        asked = wanted(concurrency=(1, 2, 3, 4), repeats=3, window_s=0.5)
        status = await client.start_benchmark(ENGINE, asked)
        status = await first_point(client, status)
        engine.load(8)
        try:
            status = await ended(client, status)
        finally:
            await asyncio.to_thread(engine.unload)
        assert status.state is BenchState.STOPPED
        assert "requests of others arrived" in status.message
        assert await client.override(ENGINE) is None


async def test_a_persons_override_outranks_it(engine: EmbeddedEngine, tmp_path: Path) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await reached(running)
        mine = OverrideRequest(mode=Mode.OFF, length_s=60, author="op2", reason="incident")
        await client.set_override(ENGINE, mine)
        with pytest.raises(RefusedError, match='override "incident" by op2 is in force'):
            await client.start_benchmark(ENGINE, wanted())
        await client.release_override(ENGINE, ReleaseRequest(author="op2"))
        status = await client.start_benchmark(ENGINE, wanted(concurrency=(1, 2, 4, 8), repeats=3))
        with pytest.raises(RefusedError, match="runs already: cancel it"):
            await client.start_benchmark(ENGINE, wanted())
        status = await first_point(client, status)
        await client.set_override(ENGINE, mine)
        status = await ended(client, status)
        assert status.state is BenchState.STOPPED
        assert "op2 set an override" in status.message
        held = await client.override(ENGINE)
        assert held is not None
        assert held.author == "op2"


async def test_an_engine_that_another_holds_is_measured_once_it_is_taken(tmp_path: Path) -> None:
    order = {"holder": "night's job", "epoch": 0, "generation": 1, "mode": "off"}
    request = wanted(tiers=("s3k1d4",))
    with embedded_engine("--tiers", ",".join(TIERS)) as own:
        async with httpx.AsyncClient(base_url=own.url, trust_env=False) as engine:
            (await engine.put("/speculation", json=order)).raise_for_status()
        shadow = settings_of(tmp_path, own.url, engine={"stance": "shadow"})
        async with control_plane(shadow) as running, running.client() as client:
            await reached(running)
            with pytest.raises(RefusedError, match=r"held by night's job and.*--holder 'night'"):
                await client.start_benchmark(ENGINE, request)
            take = TakeoverRequest(holder="night's job", author="op1", reason="to measure")
            await client.take_over(ENGINE, take)
            request = request.model_copy(update={"stream_interval": 8})
            status = await ended(client, await client.start_benchmark(ENGINE, request))
            assert status.state is BenchState.DONE
            assert [one.not_comparable for one in status.points] == [()]
            assert any("answers came in parts of 8 tokens" in note for note in status.notes)


async def test_a_restarted_engine_is_measured_again(tmp_path: Path) -> None:
    with embedded_engine("--tiers", ",".join(TIERS)) as own:
        async with (
            control_plane(settings_of(tmp_path, own.url)) as running,
            running.client() as client,
        ):
            await reached(running)
            status = await client.start_benchmark(
                ENGINE, wanted(repeats=2, window_s=0.5, budget_s=12.0)
            )
            status = await first_point(client, status)
            boot = own.state()["boot_id"]
            await asyncio.to_thread(own.fault, restart=True)
            status = await ended(client, status)
            assert own.state()["boot_id"] != boot
            assert status.state is BenchState.DONE, status.message
            first = [(p.tier, p.repeat) for p in status.points[:4]]
            assert first == [("off", 1), ("s3k1d4", 1), ("s3k1d4", 2), ("off", 2)]
            for point in status.points:
                assert not any("restarted" in text for text in point.not_comparable)


async def test_when_the_control_plane_is_killed_the_engine_goes_back_by_its_lease(
    tmp_path: Path,
) -> None:
    """Automation is in shadow: nobody takes over but the engine itself."""
    with embedded_engine("--tiers", ",".join(TIERS)) as own:
        engines = json.dumps([{"id": ENGINE, "url": own.url, "stance": "shadow", "poll_s": 0.1}])
        arguments = ["--database", str(tmp_path / "deck.sqlite3")]
        with deck(arguments, os.environ | {"SPECDECK_ENGINES": engines}) as running:
            async with ControlPlaneClient(running.url) as client:
                await contact(client)
                launch = own.state()["mode"], own.state()["replicas"][0]["ranks"][0]["tier"]
                asked = wanted(tiers=("off",), concurrency=(1, 2, 4, 8))
                await client.start_benchmark(ENGINE, asked)
                await until(lambda: own.state()["replicas"][0]["ranks"][0]["tier"] == "off")
            running.process.send_signal(signal.SIGKILL)
            running.process.wait(10)
        killed = time.monotonic()
        lease = own.state()["lease"]
        assert 0 < lease["remaining_s"] < 8
        await until(lambda: own.state()["replicas"][0]["running"] == 0, 3)
        await until(
            lambda: (own.state()["replicas"][0]["ranks"][0]["tier"]) == launch[1],
            lease["remaining_s"] + 1,
        )
        assert time.monotonic() - killed < 9


async def test_what_cannot_be_measured_is_refused_with_what_can(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    async with (
        control_plane(settings_of(tmp_path, engine.url)) as running,
        running.client() as client,
    ):
        await reached(running)
        with pytest.raises(RefusedError, match="tier s9k1d10 was not built; built are: off, s3k1"):
            await client.start_benchmark(ENGINE, wanted(tiers=("off", "s9k1d10")))
        with pytest.raises(RefusedError, match="choose one of builtin, ids"):
            await client.start_benchmark(ENGINE, wanted(prompts="poems"))
        with pytest.raises(RefusedError, match="cannot read /nowhere"):
            await client.start_benchmark(ENGINE, wanted(prompts="sharegpt:/nowhere"))
        with pytest.raises(RefusedError, match="has no benchmark 'x'"):
            await client.benchmark(ENGINE, "x")
        with pytest.raises(RefusedError, match="no engine 'e9'"):
            await client.start_benchmark("e9", wanted())
