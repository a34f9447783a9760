"""SIGKILL of either side under live requests, overrides and decisions.

Six of the 200 kills that ``tests/benchmarks/test_faults_kill.py`` makes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault_check import check
from tests.fault_rig import Rig

KILLS = 6
SEED = 20261129


@pytest.mark.timeout(600)
async def test_kills_of_either_side_lose_double_and_change_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, SEED)
    await rig.run(KILLS)
    found = check(rig)
    assert found.decisions > 0
    assert found.overrides > 0
    assert found.switches > 0
