"""The flow of load against a real embedded engine, in a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.benchrun_flow import FlowError, FlowProcess
from controlplane.benchrun_window import Load
from controlplane.load_clients import tokens_in
from controlplane.load_prompts import DECK, varied
from controlplane.load_reports import FlowSettings
from tests.embedded_process import Embedded, running


@pytest.fixture(scope="module")
def engine() -> Iterator[Embedded]:
    with running("--tiers", "off,s3k1d4") as started:
        yield started


LENGTHS = set(itertools.islice(varied(random.Random(0), 48), DECK))
"""All that an answer of 48 tokens on average may have."""


@asynccontextmanager
async def flow(engine: Embedded, **changes: Any) -> AsyncIterator[FlowProcess]:
    given = {"url": engine.url, "input_len": 16, "output_len": 48}
    process = await FlowProcess.start(FlowSettings(**given | changes))
    try:
        yield process
    finally:
        await process.close()


async def tokens_agree(load: FlowProcess, engine: Embedded) -> None:
    """What the load sees within three seconds is what the engine counts."""
    first = load.reports[-1]
    before = engine.speculation()["replicas"][0]["decode_tokens"]
    await asyncio.sleep(3)  # long beside the moment between the two readings
    last = load.reports[-1]
    made = engine.speculation()["replicas"][0]["decode_tokens"] - before
    # The engine's counter leaves out the token each prefill yields, and is read a little later.
    assert last.tokens - first.tokens == pytest.approx(made, rel=0.25)


async def test_a_closed_loop_keeps_its_clients_busy_and_follows_orders(engine: Embedded) -> None:
    async with flow(engine) as load:
        await load.order(Load(4))
        assert await load.until(lambda r: r.settled == 4 and r.in_flight == 4, 20)
        assert load.mean_output == 48
        await tokens_agree(load, engine)
        ended = [one for r in load.reports for one in r.finished]
        assert {one.error for one in ended} == {""}
        whole = [one for one in ended if not one.cut]
        assert whole
        assert {one.output_tokens for one in whole} <= LENGTHS
        cut = {one.output_tokens for one in ended if one.cut}
        assert len(cut) > 1, "clients that begin together would run in step"
        for one in whole:
            assert one.tpot_s is not None
            assert 0 < one.tpot_s < 0.1
        await load.order(Load(1))
        assert await load.until(lambda r: r.in_flight == 1, 20)
        await load.order(None)
        assert await load.until(lambda r: r.in_flight == 0, 20)
        assert "load generator: at most" in load.account()


async def test_answers_in_long_parts_are_counted_like_others(engine: Embedded) -> None:
    async with flow(engine, stream_interval=16) as load:
        await load.order(Load(4))
        assert await load.until(lambda r: r.settled == 4 and r.in_flight == 4, 20)
        await tokens_agree(load, engine)
        whole = [one for r in load.reports for one in r.finished if not one.cut]
        assert whole
        assert {one.output_tokens for one in whole} <= LENGTHS


async def test_arrivals_come_at_their_rate(engine: Embedded) -> None:
    async with flow(engine, output_len=8) as load:
        await load.order(Load(0, 25.0))
        await asyncio.sleep(2.5)
        sent = sum(len(report.finished) for report in load.reports)
        # Two and a half seconds hold 62 on average; nine of ten runs lie within thirteen.
        assert 35 <= sent <= 90


async def test_the_load_ends_with_whoever_asked_for_it(engine: Embedded) -> None:
    async with flow(engine, output_len=2000) as load:
        await load.order(Load(2))
        assert await load.until(lambda r: r.decoding == 2, 20)
        assert load._process.stdin is not None
        load._process.stdin.close()
        await asyncio.wait_for(load._process.wait(), 20)
        with pytest.raises(FlowError, match="ended unexpectedly"):
            await load.until(lambda r: r.in_flight == 3, 20)
    end = time.monotonic() + 20
    while engine.speculation()["replicas"][0]["running"]:
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def test_what_does_not_serve_is_refused_in_a_sentence(engine: Embedded) -> None:
    with pytest.raises(FlowError, match="does not serve /generate"):
        await FlowProcess.start(FlowSettings(url=f"{engine.url}/nothing", prompts="ids"))
    with pytest.raises(FlowError, match=r"does not serve /generate: (OSError|ConnectionRefused)"):
        await FlowProcess.start(FlowSettings(url="http://127.0.0.1:9", prompts="ids"))


async def test_the_key_is_sent_and_never_shown(engine: Embedded) -> None:
    settings = FlowSettings(url=engine.url, api_key="a-secret-key", output_len=4)
    assert "a-secret-key" not in repr(settings)
    process = await FlowProcess.start(settings)
    words = " ".join(psutil.Process(process._process.pid).cmdline())
    await process.close()
    assert "load_flow" in words
    assert "a-secret-key" not in words


@given(st.integers(0, 10**9), st.sampled_from(["", " "]), st.sampled_from([",", "}"]))
def test_the_count_is_read_from_an_event_without_parsing_it(
    count: int, space: str, after: str
) -> None:
    event = f'{{"text":"x","meta_info":{{"completion_tokens":{space}{count}{after}'
    assert tokens_in(event.encode()) == count
    assert tokens_in(b'{"meta_info":{"prompt_tokens":5}}') == 0
