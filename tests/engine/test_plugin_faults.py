"""What the comparison of outputs and slots is worth: a server with a fault put in is found out.

Two of the faults of ``tests/benchmarks/test_tier_equality.py``, which runs all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_patch.contract import SpeculationState
from engine_patch.contract_words import OffFlavour
from tests.engine import tier_checks, tier_rig
from tests.engine.tier_rig import Reference

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]


def test_a_wrong_length_is_noticed(work: Path, known: Reference) -> None:
    assert "was expected" in tier_rig.notices(work, "fault-length", known, "length")


def test_a_wrong_reserve_is_noticed_and_a_drafter_that_cannot_be_kept_is_told(
    work: Path, known: Reference
) -> None:
    """One start for both: the reserve does not depend on what the drafter does while off."""
    seen: list[SpeculationState] = []
    words = tier_rig.notices(
        work,
        "fault-reserve",
        known,
        "reserve",
        env={tier_checks.BROKEN_KEEP_VARIABLE: "1"},
        look=lambda server: seen.append(server.client.state()),
    )
    assert "slots, " in words
    (state,) = seen
    keep = next(c for c in state.capabilities if c.name == "keep_drafter_kv")
    assert not keep.available
    assert "no such forward" in keep.reason
    assert state.off_flavour is OffFlavour.WARM


def test_no_fault_can_be_switched_on_in_what_is_installed() -> None:
    root = Path(__file__).parents[2]
    for package in ("engine_patch", "store", "controlplane", "console"):
        for file in (root / package).rglob("*.py"):
            assert tier_checks.FAULT_VARIABLE not in file.read_text()
