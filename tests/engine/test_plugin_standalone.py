"""A drafter that is a whole model of its own: chains and off, switched like EAGLE's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_patch.contract_words import OffFlavour, OffKind
from tests.engine.conftest import MANY, NEW_TOKENS
from tests.engine.cpu_engine import CpuEngine
from tests.engine.plugin_client import PluginClient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]

TIERS = "off,s1k1d2,s3k1d4"


@pytest.fixture(scope="module")
def engine(work: Path, expected: dict[str, list[int]]) -> Iterator[PluginClient]:
    """``expected`` comes first, so that one server runs at a time."""
    with (
        CpuEngine(work, "standalone", algorithm="STANDALONE", tiers=TIERS) as server,
        PluginClient(server) as client,
    ):
        yield client


def test_its_tiers_are_built_and_what_it_cannot_do_is_told(engine: PluginClient) -> None:
    state = engine.state()
    assert [tier.name for tier in state.tiers] == TIERS.split(",")
    assert state.tiers[0].off_kind is OffKind.ONE_TOKEN_VERIFY
    capabilities = {c.name: c for c in state.capabilities}
    assert capabilities["switching"].available
    assert "standalone" in capabilities["plain_off"].reason
    assert "standalone" in capabilities["keep_drafter_kv"].reason
    assert state.off_flavour is OffFlavour.WARM


def test_it_is_switched_under_load_and_no_token_changes(
    engine: PluginClient, expected: dict[str, list[int]]
) -> None:
    stop, before = threading.Event(), engine.replica().switches

    def switch() -> None:
        flavours = ("warm", "cold")
        for number in range(10**6):
            if stop.is_set():
                return
            engine.command("off", off_flavour=flavours[number % 2])
            engine.wait_runs("off")
            tier = ("s1k1d2", "s3k1d4")[number // 2 % 2]
            engine.command("on", tier=tier)
            engine.wait_runs(tier)

    switcher = threading.Thread(target=switch)
    switcher.start()
    try:
        answers = engine.engine.generate(MANY, new_tokens=NEW_TOKENS, concurrency=8)
    finally:
        stop.set()
        switcher.join()
    got = {prompt: a["output_ids"] for prompt, a in zip(MANY, answers, strict=True)}
    assert got == expected
    assert engine.replica().switches - before >= 4
    engine.wait(lambda: engine.replica().running == engine.replica().queued == 0, "idle")
    engine.wait(lambda: engine.http.post("/flush_cache").status_code == 200, "an empty cache")
    assert engine.http.get("/v1/loads").json()["loads"][0]["num_used_tokens"] == 0


def test_while_off_nothing_is_drafted(engine: PluginClient) -> None:
    engine.command("off", off_flavour="warm")
    engine.wait_runs("off")
    (off,) = engine.engine.generate(MANY[:1], new_tokens=40)
    engine.command("on", tier="s3k1d4")
    engine.wait_runs("s3k1d4")
    (on,) = engine.engine.generate(MANY[:1], new_tokens=40)
    assert off["output_ids"] == on["output_ids"]
    # The first token comes from the prefill.
    assert off["meta_info"]["spec_verify_ct"] == 39
    assert on["meta_info"]["spec_verify_ct"] < 39
