"""200 times SIGKILL of either side, at random moments, under live requests and overrides."""

from __future__ import annotations

import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fault_rig import Rig, check

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
RESULTS = Path(__file__).parent / "results" / "faults_kill.json"
SEEDS = (1, 2, 3, 4, 5)
"""Fixed in advance; one run with a database of its own for each."""
KILLS = 40


async def test_200_kills_lose_double_and_change_nothing(tmp_path: Path) -> None:
    runs = []
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        rig, begun = Rig(folder, seed), time.monotonic()
        await rig.run(KILLS)
        found = check(rig)
        runs.append(
            {
                "seed": seed,
                "kills": KILLS,
                "control_plane_killed": rig.kills["deck"],
                "engine_killed": rig.kills["engine"],
                "commands_that_reached_an_engine": found.commands,
                "tier_changes": found.switches,
                "decisions": found.decisions,
                "overrides": found.overrides,
                "answers_of_changes_lost_in_a_kill": rig.person.lost,
                "requests_answered": rig.traffic.answered,
                "seconds": round(time.monotonic() - begun, 1),
            }
        )
        print(runs[-1])
    told = {
        "date": datetime.now(UTC).date().isoformat(),
        "setup": f"{os.cpu_count()} cores shared with other work, Python "
        f"{platform.python_version()}, loopback, control plane and embedded engine in processes "
        "of their own, polled every 50 ms, up to 14 requests at a time",
        "held": "no decision lost or doubled, no order used twice, every tier change on command "
        "has its decision, journals without holes, overrides as acknowledged, audit chain whole",
        "runs": runs,
    }
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")
