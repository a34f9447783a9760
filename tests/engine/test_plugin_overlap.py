"""The overlap loop with retractions and few KV slots: in a real server, never a token off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine import tier_checks, tier_rig
from tests.engine.conftest import MANY
from tests.engine.plugin_client import NO_JOURNAL
from tests.engine.tier_rig import Reference, TierServer, compare, tier_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def tight(work: Path, known: Reference) -> Iterator[TierServer]:
    """A server on the overlap loop that admits more than its few KV slots hold, so it retracts."""
    del known
    few = ["--max-total-tokens", "1000", "--schedule-conservativeness", "0.05"]
    with tier_server(
        work, "tight", tiers=tier_rig.WIDE, overlap=True, args=few,
        env=tier_rig.RETRACTIONS | {"SGLANG_TEST_RETRACT_INTERVAL": "40"},
    ) as server:  # fmt: skip
        yield server


def test_the_overlap_loop_with_retractions_gives_the_same_outputs(
    tight: TierServer, known: Reference
) -> None:
    assert "'disable_overlap_schedule': False" in tight.engine.log
    report = compare(tight, known, seed=2, concurrency=12)
    assert report.wrong == []
    assert (report.used, report.retractions > 0) == (0, True)
    assert report.switches > 20


def test_lengths_are_not_waited_for_from_one_off_round_to_the_next(tight: TierServer) -> None:
    """What the host works out is compared with the truth in every round of every server here."""
    client = tight.client
    client.command("off")
    client.wait_runs("off")
    tight.engine.generate(MANY[:3], new_tokens=60, concurrency=3)
    assert len(tier_checks.slots(tight.slots)["lengths, known"]) == 40


def test_a_larger_tier_without_free_slots_is_refused_and_nothing_moves(tight: TierServer) -> None:
    client, end = tight.client, time.monotonic() + 120
    client.command("off")
    client.wait_runs("off")
    refusals: list[dict[str, Any]] = []

    def short() -> bool:
        """Whether the widest tier needs 40 slots per request, off 2, and they are not there."""
        now = client.replica()
        free = now.kv.capacity - now.kv.committed - now.kv.reserve
        return now.running * 38 > free

    # Six requests that begin and end together hold nearly all of 1,000 slots before they end, and
    # six times 38 are not left.  Retractions put them out of step, so they begin anew together.
    while not refusals:
        assert time.monotonic() < end, client.state(NO_JOURNAL)
        with client.load([f"a {number}" for number in range(6)], clients=6, new_tokens=155):
            turn = time.monotonic() + 8
            while not refusals and time.monotonic() < turn:
                if not short():
                    time.sleep(0.01)
                    continue
                answer = client.put("on", tier="s5k4d8")
                if answer.status_code == 409:
                    refusals.append(answer.json())
                    tier = client.state().desired_tier
                else:  # the numbers were older than the command
                    client.command("off")
    assert refusals[0]["code"] == "kv_short"
    assert refusals[0]["needed_slots"] > refusals[0]["free_slots"] >= 0
    assert tier == "off"
