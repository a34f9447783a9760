"""Progress in words, what is stored, the table that stays, and the request that applies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.bench_propose import propose
from controlplane.bench_records import BenchFile
from controlplane.benchrun_apply import policy_request, proposal_lines, thresholds_words
from controlplane.benchrun_bar import bar, ended_line, point_line, progress_line
from controlplane.benchrun_costs import table_after
from controlplane.benchrun_messages import BenchState
from controlplane.benchrun_stored import UNFINISHED, marker, point_record, stored
from engine_patch.costs import StepCost
from store.db import Store
from store.policies import FixedPolicy, HysteresisPolicy, PolicyConfig, Stance
from tests import console_bench_story as story
from tests.console_story import DEEP, ENGINE, NARROW, OFF

KEY = story.status().setup_key


@given(st.one_of(st.none(), st.floats(-1, 2)), st.integers(1, 60))
def test_the_bar_always_has_its_width(share: float | None, cells: int) -> None:
    assert len(bar(share, cells)) == cells + 2


def test_the_line_names_phase_and_time_left_and_fits() -> None:
    line = progress_line(story.running(), 100)
    assert line == (
        "[##########----------] 22/45  s3k1d4 at 16 clients, repeat 2, at most 5m12s left"
    )
    assert len(progress_line(story.running(), 40)) == 40
    assert progress_line(story.running(total_runs=0, left_s=None), 80).startswith("[....")


def test_points_and_ends_are_told_in_one_line() -> None:
    point = story.points()[2].model_copy(update={"not_comparable": ("it rained",)})
    assert "accept 2.05" in point_line(point)
    assert "TTFT -" in point_line(point)
    assert point_line(point).endswith("! it rained")
    assert ended_line(story.status()) == f"benchmark {story.ID} done: 45 of 45 runs in 10m"
    stopped = story.status(state=BenchState.STOPPED, message="others came")
    assert ended_line(stopped).endswith("stopped after 45 of 45 runs in 10m: others came")


def test_what_was_stored_is_put_together_again(tmp_path: Path) -> None:
    done = story.status(prompts="ids")
    cut = story.running(id="20261129-130000")
    with Store.open(tmp_path / "deck.sqlite3") as store:
        records = [point_record(one, point) for one in (done, cut) for point in one.points]
        other = point_record(done.model_copy(update={"engine_id": "e9"}), done.points[0])
        broken = records[0].model_copy(update={"detail": "not json"})
        store.write([*records, other, broken, marker(cut, 5, 1), marker(done, 9, 2)]).result()
        first, second = stored(store, ENGINE, KEY)
        assert stored(store, ENGINE, "another key") == []
    assert (first.id, first.state, first.ended_utc_ms) == (done.id, BenchState.DONE, 9)
    assert first.points == done.points
    assert first.prompts == "ids"
    assert (second.state, second.message) == (BenchState.UNFINISHED, UNFINISHED)
    assert second.points == cut.points


def cost(tier: str, size: int, mean_ms: float, samples: int = 100) -> StepCost:
    return StepCost(tier=tier, bucket=size, samples=samples, mean_ms=mean_ms)


def test_the_engines_own_step_times_win_over_those_derived_from_runs() -> None:
    points = tuple(p.model_copy(update={"running": float(p.concurrency)}) for p in story.points())
    file = BenchFile(setup_key=KEY, points=points)
    table = table_after(file, (cost(OFF, 1, 4.0), cost(OFF, 4, 9.0, samples=0)), None, 1000)
    assert table is not None
    cells = {(one.tier, one.bucket): one for one in table.costs}
    assert cells[OFF, 1].mean_ms == pytest.approx(4.0)
    # One request at 198 tok/s takes 1/198 s a token; the mean of three repeats.
    assert cells[DEEP, 1].mean_ms == pytest.approx(1000 * 2.05 / 305, rel=0.02)
    assert "live step times" in table.source
    assert "benchmark runs" in table.source
    later = table_after(file, (cost(OFF, 1, 6.0),), table, 2000)
    assert later is not None
    merged = next(one for one in later.costs if (one.tier, one.bucket) == (OFF, 1))
    assert 4.0 < merged.mean_ms < 6.0
    assert table_after(BenchFile(setup_key=KEY), (), None, 1) is None


def test_applying_keeps_holds_and_guards_and_names_the_benchmark() -> None:
    proposal = propose(story.points())
    present = PolicyConfig(
        engine_id=ENGINE,
        version=7,
        stance=Stance.ACTIVE,
        policy=HysteresisPolicy(tiers=(OFF,), up_hold_s=9.0, kv_high=0.7, kv_low=0.5),
        author="op2",
        created_utc_ms=1,
    )
    asked = policy_request(proposal, present, benchmark="b1", stance=Stance.SHADOW, author="op1")
    assert isinstance(asked.policy, HysteresisPolicy)
    assert asked.policy.tiers == (DEEP, NARROW, OFF)
    assert asked.policy.boundaries == proposal.policy.boundaries
    assert (asked.policy.up_hold_s, asked.policy.kv_high) == (9.0, 0.7)
    assert (asked.author, asked.if_version) == ("bench op1", 7)
    assert asked.reason.startswith("benchmark b1: ")
    fixed = present.model_copy(update={"policy": FixedPolicy(tier=OFF)})
    anew = policy_request(proposal, fixed, benchmark="b1", stance=Stance.ACTIVE, author="op1")
    assert anew.policy == proposal.policy
    lines = "\n".join(proposal_lines(proposal, present))
    assert "version 7 by op2, active: off" in lines
    assert thresholds_words(proposal.policy) in lines
    assert proposal.gain in lines
