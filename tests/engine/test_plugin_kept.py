"""The drafter's keys and values of off rounds: stored late, and there when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine import kept_kv
from tests.engine.conftest import MANY
from tests.engine.plugin_client import PluginClient
from tests.engine.tier_rig import tier_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


def _off_rounds(client: PluginClient, rounds: int) -> None:
    """Let that many rounds run off."""
    client.command("off", off_flavour="keep")
    client.wait_runs("off", 30)
    start = client.replica().decode_steps
    client.wait(lambda: client.replica().decode_steps >= start + rounds, f"{rounds} rounds", 30)


def _on(client: PluginClient, tier: str) -> None:
    client.command("on", tier=tier)
    client.wait_runs(tier, 30)


def _ask(client: PluginClient, tokens: list[int], new_tokens: int) -> dict[str, Any]:
    params = {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
    answer = client.http.post("/generate", json={"input_ids": tokens, "sampling_params": params})
    found: dict[str, Any] = answer.json()
    return found


def test_what_off_rounds_keep_is_stored_together_and_right_when_it_is_read(work: Path) -> None:
    with tier_server(work, "kept", overlap=True, kept=True) as server:
        client = server.client
        # One request alone, whose rounds are stored sixteen at a time.
        client.command("off", off_flavour="keep")
        client.wait_runs("off")
        prompt = list(range(40, 60))
        longer = prompt + _ask(client, prompt, 100)["output_ids"]
        # Its prefix is cached, so a prefill reads what it kept.
        assert _ask(client, longer, 2)["meta_info"]["cached_tokens"] > 100
        counts = server.kept()
        assert counts.prefills > 90
        assert counts.calls < counts.rounds / 8
        # Under load, requests come and go, and every move up reads what was kept before it.
        with client.load(MANY, clients=6, new_tokens=90):
            client.wait(lambda: client.replica().running > 3, "load", 30)
            for tier in ("s2k4d8", "s3k1d4", "s1k1d2") * 2:
                _off_rounds(client, 12)
                _on(client, tier)
        counts = server.kept()
    assert counts.drafts > 300
    assert counts.gap < 1e-3
    assert counts.calls < counts.rounds / 2


def test_a_prefill_that_reads_what_is_not_stored_yet_is_noticed(work: Path) -> None:
    env = {kept_kv.UNPAID_VARIABLE: "1"}
    with tier_server(work, "unpaid", kept=True, env=env) as server:
        client = server.client
        client.command("off", off_flavour="keep")
        client.wait_runs("off")
        prompt = list(range(40, 60))
        longer = prompt + _ask(client, prompt, 100)["output_ids"]
        with pytest.raises(httpx.HTTPError):
            _ask(client, longer, 2)
        assert "one of the prefills reads a row that is" in client.engine.log
