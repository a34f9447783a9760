"""What one controller step costs: the bound on what-if over a long recording."""

from __future__ import annotations

import time

import pytest

from controlplane.controller import step
from store.observations import Sample
from store.policies import RULES
from tests.controlplane_script import Script, config


@pytest.mark.benchmark
@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("rules", [1, RULES])
def test_a_step_costs_little(rules: int, explain: bool) -> None:
    script = Script(config(rules=rules))
    for _ in range(4):
        script.see(1)
    observations: list[Sample] = []
    for index in range(2_000):
        script.wait(500)
        script.decode_tokens += 100
        script.verify_steps += 5
        script.lease_ms = 25_000
        load = 17 if index % 100 >= 50 else 1
        observations.append(
            script.sample(load, accept_length=2.5, accept_tier="s3k1d4", accept_requests=100)
        )
    best = float("inf")
    for _ in range(5):
        state, start = script.state, time.process_time()
        for observation in observations:
            state, _, _ = step(script.config, state, observation, explain=explain)
        best = min(best, (time.process_time() - start) / len(observations))
    day = best * 172_800
    what = f"step(rules={rules}, explain={explain})"
    print(f"\n{what}: {best * 1e6:.1f} µs; 24 h at 2 Hz: {day:.1f} s")
    # What-if over a day must stay below 10 s; explanations are for what is shown.
    assert explain or day < 10
