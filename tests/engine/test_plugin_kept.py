"""The drafter's keys and values of off rounds: stored late, and there when they are read."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.engine import kept_kv
from tests.engine.conftest import MANY
from tests.engine.tier_rig import tier_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


def test_what_off_rounds_keep_is_stored_together_and_right_when_it_is_read(work: Path) -> None:
    with tier_server(work, "kept", overlap=True, kept=True) as server:
        # One request alone, whose rounds are stored sixteen at a time.
        assert kept_kv.read_by_prefill(server.client) > 100
        counts = server.kept()
        assert counts.prefills > 90
        assert counts.calls < counts.rounds / 8
        assert counts.strided == 0
        # Under load, requests come and go, and every move up reads what was kept before it.
        kept_kv.read_by_drafts(server.client, MANY)
        counts = server.kept()
    assert counts.drafts > 300
    assert counts.gap < 1e-3
    assert counts.strided == 0
    assert counts.calls < counts.rounds / 2


def test_a_prefill_that_reads_what_is_not_stored_yet_is_noticed(work: Path) -> None:
    env = {kept_kv.UNPAID_VARIABLE: "1"}
    with tier_server(work, "unpaid", kept=True, env=env) as server:
        with pytest.raises(httpx.HTTPError):
            kept_kv.read_by_prefill(server.client)
        assert "one of the prefills reads a row that is" in server.engine.log
