"""200 times SIGKILL of either side, at random moments, under live requests and overrides."""

from __future__ import annotations

import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fault_check import check
from tests.fault_rig import Rig

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
RESULTS = Path(__file__).parent / "results" / "faults_kill.json"
SEEDS = tuple(range(1, 11))
"""Fixed in advance; one run with a database of its own for each."""
KILLS = 20


@pytest.mark.parametrize("seed", SEEDS)
async def test_20_kills_lose_double_and_change_nothing(tmp_path: Path, seed: int) -> None:
    rig, begun = Rig(tmp_path, seed), time.monotonic()
    await rig.run(KILLS)
    found = check(rig)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    known["setup"] = (
        f"{os.cpu_count()} cores shared with other work, Python {platform.python_version()}, "
        "loopback; control plane and embedded engine in processes of their own, polled every "
        "50 ms, up to 14 requests at a time"
    )
    known["held"] = (
        "no decision lost or doubled, no order used twice, every tier change on command has its "
        "decision, journals without holes, overrides as acknowledged, audit chain whole"
    )
    known["runs"][f"seed {seed}"] = {
        "date": datetime.now(UTC).date().isoformat(),
        "times_killed": KILLS,
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
    known["runs"] = dict(sorted(known["runs"].items(), key=lambda run: int(run[0].split()[1])))
    known["times_killed"] = sum(run["times_killed"] for run in known["runs"].values())
    print(json.dumps(known["runs"][f"seed {seed}"]))
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
