"""The engine client against the embedded engine, over real sockets, with its faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.clock import SystemClock
from controlplane.engine import SHAKE_AGAIN_MS, EngineClient
from controlplane.polled import EngineError, Polled
from engine_patch.contract_words import Mode
from store.observations import Gap, GapReason, PluginStatus, Sample, Source
from store.records import Command, OutcomeKind
from tests.embedded_process import Embedded, running
from tests.engine_pipe import Pipe


class Clock(SystemClock):
    """The machine's clock, which a test may push forward."""

    ahead_ms = 0

    def mono_ms(self) -> int:
        return super().mono_ms() + self.ahead_ms


@pytest.fixture(scope="module")
def shared() -> Iterator[Embedded]:
    with running("--tp", "2") as engine:
        yield engine


@pytest.fixture
def engine(shared: Embedded) -> Embedded:
    shared.fault(clear=True, restart=True)
    return shared


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[EngineClient]:
    one = EngineClient("e", url, **{"timeout_s": 2.0, "holder": "tester", **options})
    try:
        yield one
    finally:
        await one.aclose()


def sample(polled: Polled) -> Sample:
    assert isinstance(polled.observation, Sample), polled.observation
    return polled.observation


def gap(polled: Polled) -> Gap:
    assert isinstance(polled.observation, Gap), polled.observation
    return polled.observation


@asynccontextmanager
async def load(url: str, clients: int, tokens: int = 4000) -> AsyncIterator[None]:
    """``clients`` requests in flight, dropped at the end."""
    body = {
        "input_ids": list(range(16)),
        "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True},
    }
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        tasks = [asyncio.create_task(http.post("/generate", json=body)) for _ in range(clients)]
        try:
            for _ in range(500):
                if await decoding(http) == clients:
                    break
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)  # until some steps were decoded
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def decoding(http: httpx.AsyncClient) -> int:
    """Requests in the running batches."""
    loads = (await http.get("/v1/loads")).json()["loads"]
    return sum(replica["num_running_reqs"] for replica in loads)


def command(generation: int, **changes: Any) -> Command:
    values: dict[str, Any] = {
        "mode": Mode.ON,
        "tier": "s3k1d4",
        "lease_s": 60,
        "epoch": 0,
        "generation": generation,
    }
    return Command(**{**values, **changes})


# -- a patched engine ----------------------------------------------------------------------------


async def test_a_patched_engine_is_watched_by_speculation_alone(engine: Embedded) -> None:
    async with Pipe(engine.url) as pipe, client(pipe.url) as one:
        first = await one.poll(1)
        second = await one.poll(2)
        facts = first.facts_changed
        assert facts is not None
        assert facts.plugin is PluginStatus.PRESENT
        assert facts.simulated
        assert facts.versions is not None
        assert [tier.name for tier in facts.tiers] == ["off", "s1k1d2", "s3k1d4"]
        assert second.facts_changed is None
        assert first.costs
        seen = sample(first)
        assert (seen.engine_id, seen.seq, seen.source) == ("e", 1, Source.SPECULATION)
        assert seen.boot_id == facts.boot_id
        assert (seen.concurrency, seen.engine_tier) == (0, "s3k1d4")
        assert [rank.tp_rank for rank in seen.applied] == [0, 1]
        assert seen.accept_length is None
        assert sample(second).fresh
        assert all(line.startswith("GET /speculation?since=") for line in pipe.requests)


async def test_times_come_from_the_clock_that_was_given(engine: Embedded) -> None:
    clock = Clock()
    async with client(engine.url, clock=clock, clock_id=clock.clock_id) as one:
        before = (clock.utc_ms(), clock.mono_ms())
        seen = sample(await one.poll(1))
        assert before[0] <= seen.at_utc_ms <= clock.utc_ms()
        assert before[1] <= seen.at_mono_ms <= clock.mono_ms()
        assert seen.clock_id == clock.clock_id
        assert 0 <= seen.latency_ms < 2000


async def test_load_shows_in_the_numbers(engine: Embedded) -> None:
    async with client(engine.url) as one, load(engine.url, 8):
        first, second = sample(await one.poll(1)), sample(await one.poll(2))
        assert first.concurrency == first.replica_concurrency == 8
        assert first.accept_length is not None
        assert 1.0 < first.accept_length <= 4.0
        assert first.accept_tier == "s3k1d4"
        assert first.accept_requests > 0
        assert first.kv.used is not None
        assert first.kv.used > 0
        assert first.decode_tokens is not None
        assert second.decode_tokens is not None
        assert second.decode_tokens >= first.decode_tokens > 0


async def test_dp_replicas_are_added_up() -> None:
    with running("--dp", "2") as engine:
        async with client(engine.url) as one, load(engine.url, 5):
            seen = sample(await one.poll(1))
            assert (seen.concurrency, seen.replica_concurrency) == (5, 3)
            assert [(rank.dp_rank, rank.tp_rank) for rank in seen.applied] == [(0, 0), (1, 0)]


async def test_raw_answers_are_handed_back_only_when_asked_for(engine: Embedded) -> None:
    async with client(engine.url) as one:
        assert (await one.poll(1)).scrapes == ()
        (scrape,) = (await one.poll(2, keep_raw=True)).scrapes
        assert (scrape.engine_id, scrape.seq, scrape.path) == ("e", 2, "/speculation")
        assert '"boot_id"' in scrape.text
        metrics = await one.scrape_metrics(2)
        assert metrics is not None
        assert metrics.path == "/metrics"
        assert "sglang:num_running_reqs" in metrics.text


async def test_the_handshake_takes_nothing_away_from_the_first_poll(engine: Embedded) -> None:
    async with client(engine.url) as one:
        await one.put(command(1, mode=Mode.OFF, tier=None))
        facts = await one.handshake()
        assert facts.plugin is PluginStatus.PRESENT
        seen = await one.poll(1)
        assert seen.facts_changed is None
        assert [entry.to_tier for entry in sample(seen).switches] == ["off"]
        assert sample(seen).fresh


# -- commands ------------------------------------------------------------------------------------


async def test_a_command_is_accepted_and_its_switch_read_once(engine: Embedded) -> None:
    async with client(engine.url) as one:
        before = sample(await one.poll(1))
        outcome = await one.put(command(1, mode=Mode.OFF, tier=None))
        assert outcome.kind is OutcomeKind.ACCEPTED
        assert (outcome.engine_epoch, outcome.engine_generation) == (0, 1)
        after, again = sample(await one.poll(2)), sample(await one.poll(3))
        assert (before.engine_tier, after.engine_tier) == ("s3k1d4", "off")
        assert (after.mode, after.generation, after.claim_holder) == (Mode.OFF, 1, "tester")
        assert after.lease_remaining_s is not None
        assert 50 < after.lease_remaining_s <= 60
        assert {rank.generation for rank in after.applied} == {1}
        assert [(e.seq, e.from_tier, e.to_tier) for e in after.switches] == [(1, "s3k1d4", "off")]
        assert again.switches == ()


async def test_refused_commands_say_why(engine: Embedded) -> None:
    async with client(engine.url) as one, client(engine.url, holder="rival") as other:
        assert (await one.put(command(5))).kind is OutcomeKind.ACCEPTED
        stale = await one.put(command(4))
        assert (stale.kind, stale.code) == (OutcomeKind.REFUSED, "stale_order")
        assert (stale.engine_epoch, stale.engine_generation) == (0, 5)
        foreign = await other.put(command(9))
        assert (foreign.code, foreign.held_by) == ("foreign_claim", "tester")
        assert foreign.held_for_s is not None
        assert 50 < foreign.held_for_s <= 60
        unknown = await one.put(command(6, tier="s7k1d8"))
        assert unknown.code == "unknown_tier"
        assert "s1k1d2" in unknown.message
        taken = await other.put(command(9, takeover=True))
        assert (taken.kind, taken.engine_epoch) == (OutcomeKind.ACCEPTED, 1)


async def test_the_admin_key_goes_with_commands_and_with_nothing_else(tmp_path: Path) -> None:
    key = "sk-admin-1234"
    (tmp_path / "key").write_text(key)
    with running("--admin-key-file", str(tmp_path / "key")) as engine:
        async with client(engine.url) as keyless:
            refused = await keyless.put(command(1))
            assert (refused.kind, refused.code) == (OutcomeKind.REFUSED, "forbidden")
            assert "admin_key_file or admin_key_env" in refused.message
        async with client(engine.url, admin_key="sk-wrong-5678") as wrong:
            refused = await wrong.put(command(1))
            assert refused.code == "forbidden"
            assert "sk-wrong-5678" not in refused.model_dump_json()
        async with Pipe(engine.url) as pipe, client(pipe.url, admin_key=key) as one:
            assert (await one.put(command(1))).kind is OutcomeKind.ACCEPTED
            sample(await one.poll(1))


async def test_a_rank_that_keeps_its_tier_leaves_no_common_tier(engine: Embedded) -> None:
    async with client(engine.url) as one:
        sample(await one.poll(1))
        engine.fault(rank_refuses=1)
        await one.put(command(1, mode=Mode.OFF, tier=None))
        seen = sample(await one.poll(2))
        assert [(r.tp_rank, r.tier, r.generation) for r in seen.applied] == [
            (0, "off", 1),
            (1, "s3k1d4", 0),
        ]
        assert seen.engine_tier is None


# -- faults --------------------------------------------------------------------------------------


async def test_a_hanging_engine_is_a_gap_in_time_and_gets_no_second_request(
    engine: Embedded,
) -> None:
    async with Pipe(engine.url) as pipe, client(pipe.url, timeout_s=0.3) as one:
        sample(await one.poll(1))
        engine.fault(hang=60)
        for seq in (2, 3):
            begun = time.monotonic()
            missing = gap(await one.poll(seq))
            assert time.monotonic() - begun < 20
            assert missing.reason is GapReason.TIMEOUT
            assert "did not answer GET /speculation within 0.3 s" in missing.message
        assert pipe.asked("GET /speculation") == 2
        engine.fault(hang=0)
        await asyncio.sleep(0.1)
        back = sample(await one.poll(4))
        assert back.fresh
        # The answer that came late was thrown away: a request of its own brought this one.
        assert pipe.asked("GET /speculation") == 3


async def test_a_command_without_an_answer_says_that_its_effect_is_open(engine: Embedded) -> None:
    async with (
        Pipe(engine.url, hold="PUT /speculation") as pipe,
        client(pipe.url, timeout_s=0.2) as one,
    ):
        outcome = await one.put(command(1))
        assert outcome.kind is OutcomeKind.UNREACHABLE
        assert "did not answer PUT /speculation within 0.2 s" in outcome.message
        assert "whether the engine took the command" in outcome.message
        assert pipe.asked("PUT /speculation") == 1


async def test_numbers_that_stand_still_are_not_a_fresh_sample(engine: Embedded) -> None:
    async with client(engine.url) as one:
        engine.fault(freeze_sample=True)
        assert sample(await one.poll(1)).fresh
        assert not sample(await one.poll(2)).fresh
        engine.fault(freeze_sample=False)
        assert sample(await one.poll(3)).fresh


async def test_a_restart_brings_a_new_boot_id_new_facts_and_a_new_journal(
    engine: Embedded,
) -> None:
    async with client(engine.url) as one:
        await one.put(command(1, mode=Mode.OFF, tier=None))
        await one.put(command(2))
        before = await one.poll(1)
        assert [entry.seq for entry in sample(before).switches] == [1, 2]
        engine.fault(restart=True)
        await one.put(command(1, mode=Mode.OFF, tier=None))
        after = [await one.poll(2), await one.poll(3)]
        assert sample(after[0]).boot_id != sample(before).boot_id
        assert after[0].facts_changed is not None
        assert after[0].facts_changed.boot_id == sample(after[0]).boot_id
        # The first answer of a new start was still asked from the old number.
        assert [entry.seq for one in after for entry in sample(one).switches] == [1]
        assert not any(sample(one).journal_hole for one in after)


async def test_an_error_is_a_gap_with_the_engines_words(engine: Embedded) -> None:
    async with client(engine.url) as one:
        sample(await one.poll(1))
        engine.fault(error=1)
        missing = gap(await one.poll(2))
        assert missing.reason is GapReason.BAD_ANSWER
        assert "500: fault port: error" in missing.message
        assert sample(await one.poll(3)).fresh


async def test_an_engine_that_is_not_there_is_a_gap_that_says_what_to_check() -> None:
    with running() as engine:
        async with client(engine.url) as one:
            sample(await one.poll(1))
            engine.process.terminate()
            engine.process.wait(10)
            missing = gap(await one.poll(2))
            assert missing.reason is GapReason.UNREACHABLE
            outcome = await one.put(command(1))
            assert outcome.kind is OutcomeKind.UNREACHABLE
            assert "is the engine up and its url right?" in outcome.message
            assert await one.scrape_metrics(3) is None
            with pytest.raises(EngineError, match="cannot connect to 127"):
                await one.handshake()


async def test_something_that_speaks_no_http_is_a_bad_answer() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with client(f"http://127.0.0.1:{port}") as one:
            missing = gap(await one.poll(1))
            assert missing.reason is GapReason.BAD_ANSWER
            assert "does not answer GET /speculation in HTTP" in missing.message


async def test_a_wanted_api_key_is_named_and_then_sent_with_reads(engine: Embedded) -> None:
    async with Pipe(engine.url, key="sk-read-1234") as pipe:
        async with client(pipe.url) as keyless:
            missing = gap(await keyless.poll(1))
            assert missing.reason is GapReason.UNAUTHORISED
            assert "api_key_file or api_key_env" in missing.message
        async with client(pipe.url, api_key="sk-wrong") as wrong:
            missing = gap(await wrong.poll(1))
            assert missing.reason is GapReason.UNAUTHORISED
            assert "sk-wrong" not in missing.message
        async with client(pipe.url, api_key="sk-read-1234") as one:
            assert sample(await one.poll(1)).source is Source.SPECULATION


@pytest.mark.parametrize("url", ["", "127.0.0.1:30000", "ftp://host", "http://"])
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        EngineClient("e", url)


def test_a_key_no_header_can_carry_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="no HTTP header can carry") as caught:
        EngineClient("e", "http://127.0.0.1:1", admin_key="sk-1\n")
    assert "sk-1" not in str(caught.value)


# -- without a usable plugin ---------------------------------------------------------------------


async def test_an_absent_plugin_is_watched_by_loads_and_metrics(engine: Embedded) -> None:
    engine.fault(drop_speculation=True)
    async with client(engine.url) as one, load(engine.url, 8):
        first = await one.poll(1)
        facts = first.facts_changed
        assert facts is not None
        assert facts.plugin is PluginStatus.ABSENT
        assert not facts.writable
        assert facts.simulated
        assert "pip install 'specdeck[engine]'" in facts.plugin_message
        assert first.costs == ()
        await asyncio.sleep(0.3)
        second = await one.poll(2)
        assert second.facts_changed is not None
        assert second.facts_changed.identity is not None
        assert second.facts_changed.launch_tier == "s3k1d4"
        third = sample(await one.poll(3))
        for seq in range(4, 100):  # until two gauge windows were seen
            if third.accept_length is not None:
                break
            await asyncio.sleep(0.1)
            third = sample(await one.poll(seq))
        assert third.source is Source.METRICS
        assert (third.concurrency, third.engine_tier) == (8, "s3k1d4")
        assert third.mode is None
        assert third.accept_length is not None
        assert 1.0 < third.accept_length <= 4.0
        rising = [sample(first).decode_tokens, sample(second).decode_tokens, third.decode_tokens]
        assert None not in rising
        assert rising == sorted(set(rising))  # type: ignore[type-var]


async def test_raw_answers_of_an_unpatched_engine_are_loads_and_metrics(
    engine: Embedded,
) -> None:
    engine.fault(drop_speculation=True)
    async with client(engine.url) as one:
        scrapes = (await one.poll(1, keep_raw=True)).scrapes
        assert [scrape.path for scrape in scrapes] == ["/v1/loads", "/metrics"]


async def test_a_command_to_an_engine_without_the_plugin_is_refused(engine: Embedded) -> None:
    engine.fault(drop_speculation=True)
    async with client(engine.url) as one:
        outcome = await one.put(command(1))
        assert (outcome.kind, outcome.code) == (OutcomeKind.REFUSED, "unsupported")


async def test_a_refused_plugin_is_quoted_and_the_engine_still_watched(
    engine: Embedded,
) -> None:
    engine.fault(refused="SGLang 0.6.0 is not known: use specdeck 0.9 or newer")
    async with client(engine.url) as one:
        seen = await one.poll(1)
        assert sample(seen).source is Source.METRICS
        assert seen.facts_changed is not None
        assert seen.facts_changed.plugin is PluginStatus.REFUSED
        assert seen.facts_changed.plugin_message.startswith(
            "plugin refused: SGLang 0.6.0 is not known"
        )


async def test_another_protocol_is_named_on_both_sides_and_the_engine_still_watched(
    engine: Embedded,
) -> None:
    engine.fault(protocol=99)
    async with client(engine.url) as one:
        seen = await one.poll(1)
        assert sample(seen).source is Source.METRICS
        assert seen.facts_changed is not None
        assert seen.facts_changed.plugin is PluginStatus.PROTOCOL
        assert seen.facts_changed.protocol == 99
        assert "speaks protocol 99, this control plane 1" in seen.facts_changed.plugin_message


async def test_a_plugin_that_goes_and_comes_back_is_noticed(engine: Embedded) -> None:
    clock = Clock()
    async with client(engine.url, clock=clock) as one:
        assert sample(await one.poll(1)).source is Source.SPECULATION
        engine.fault(drop_speculation=True)
        gone = await one.poll(2)
        assert gone.facts_changed is not None
        assert gone.facts_changed.plugin is PluginStatus.ABSENT
        engine.fault(drop_speculation=False)
        assert sample(await one.poll(3)).source is Source.METRICS
        clock.ahead_ms = SHAKE_AGAIN_MS
        back = await one.poll(4)
        assert sample(back).source is Source.SPECULATION
        assert back.facts_changed is not None
        assert back.facts_changed.plugin is PluginStatus.PRESENT


async def test_a_restart_of_an_unpatched_engine_shows_in_its_boot_id(
    engine: Embedded,
) -> None:
    engine.fault(drop_speculation=True)
    async with client(engine.url) as one:
        async with load(engine.url, 2):
            before = sample(await one.poll(1))
            assert before.decode_tokens
        engine.fault(restart=True)
        after = await one.poll(2)
        assert sample(after).boot_id != before.boot_id
        assert after.facts_changed is not None
        assert after.facts_changed.boot_id == sample(after).boot_id


async def test_nothing_waits_for_server_info_and_it_is_asked_once(engine: Embedded) -> None:
    engine.fault(drop_speculation=True)
    async with (
        Pipe(engine.url, hold="GET /server_info") as pipe,
        client(pipe.url, timeout_s=0.5) as one,
    ):
        for seq in range(4):
            assert sample(await one.poll(seq)).concurrency == 0
            await asyncio.sleep(0.05)
        assert pipe.asked("GET /server_info") == 1
        assert one.facts is not None
        assert one.facts.identity is None


async def test_an_answer_missing_from_one_endpoint_hangs_only_that_poll(
    engine: Embedded,
) -> None:
    engine.fault(drop_speculation=True)
    async with (
        Pipe(engine.url, hold="GET /metrics") as pipe,
        client(pipe.url, timeout_s=0.3) as one,
    ):
        missing = gap(await one.poll(1))
        assert missing.reason is GapReason.TIMEOUT
        assert "GET /metrics" in missing.message
        gap(await one.poll(2))
        assert pipe.asked("GET /metrics") == 1


async def test_a_server_that_is_no_sglang_is_named(engine: Embedded) -> None:
    async with client(engine.url + "/nowhere") as one:
        missing = gap(await one.poll(1))
        assert missing.reason is GapReason.BAD_ANSWER
        assert "no SGLang at 127.0.0.1" in missing.message


async def test_closing_leaves_nothing_behind(engine: Embedded) -> None:
    engine.fault(drop_speculation=True)
    before = asyncio.all_tasks()
    async with Pipe(engine.url, hold="GET /server_info") as pipe:
        one = EngineClient("e", pipe.url, timeout_s=0.5)
        sample(await one.poll(1))
        sample(await one.poll(2))  # by now the question for /server_info is on its way
        assert pipe.asked("GET /server_info") == 1
        await one.aclose()
    assert asyncio.all_tasks() == before
