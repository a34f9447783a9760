"""What-if: the live policy over recorded moments, estimates where the table covers, and honesty."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from controlplane.basis import make_basis
from controlplane.whatif_answer import Subject, answer, subject_from, with_policy
from controlplane.whatif_arrivals import Queue, arrivals_of
from controlplane.whatif_costs import Accept, CostModel
from controlplane.whatif_estimate import LoadModel
from controlplane.whatif_fit import passes
from controlplane.whatif_moments import moments_of
from controlplane.whatif_policy import edited, policy_text, read_policy
from controlplane.whatif_run import run
from engine_patch.costs import ContextBand, StepCost
from engine_patch.embedded.table import load
from engine_patch.tier import OFF
from store import session_track
from store.errors import StoreError
from store.policies import FixedPolicy, HysteresisPolicy
from tests.controlplane_script import config, two_tiers
from tests.session_parts import Recorded
from tests.whatif_study import Ran, Trial, predict, trial
from tests.whatif_study import run as really_run

RESULTS = Path(__file__).parent / "benchmarks" / "results" / "whatif_honesty.json"
IN_CI = 6
"""Trials of the honesty study that the default suite runs again, of 200."""


@cache
def _ran(number: int) -> tuple[Trial, Ran, Subject]:
    given = trial(number)
    ran = really_run(given, given.one, seed=2 * number)
    return given, ran, subject_from("study", ran.config, ran.track, ran.config.costs)


def _subject(loads: list[int], policy: HysteresisPolicy | None = None) -> Subject:
    recorded = Recorded(config=config(policy or two_tiers()))
    for load_ in loads:
        recorded.see(load_)
    rows = [
        session_track.row(
            t.observation.seq, t.observation.at_utc_ms, False, t.model_dump(mode="json")
        )
        for t in recorded.ticks
    ]
    return subject_from("s", recorded.config, session_track.from_rows(rows), ())


def test_the_recorded_policy_asked_again_makes_the_recorded_switches() -> None:
    loads = [2] * 40 + [40] * 60 + [2] * 60 + [30] * 3 + [2] * 40 + [50] * 40
    subject = _subject(loads)
    found = answer(subject, subject.config.policy, LoadModel.RECORDED)
    turns = [(one.to_tier, one.seq) for one in found.what_if.turns]
    recorded = [(one.to_tier, one.seq) for one in found.recorded.turns]
    assert [tier for tier, _ in turns] == [tier for tier, _ in recorded] == [OFF, "s3k1d4", OFF]
    # The engine is seen to obey one sample after it is told.
    assert all(later - told <= 1 for (_, told), (_, later) in zip(turns, recorded, strict=True))


def test_other_thresholds_part_from_the_recording_where_they_matter() -> None:
    subject = _subject([2] * 40 + [40] * 60 + [2] * 60)
    policy = with_policy(
        subject.config, edited(subject.config.policy.policy, ["boundaries.0.up_at=50"])
    )
    found = answer(subject, policy, LoadModel.RECORDED)
    assert found.what_if.switches == 0
    assert found.recorded.switches == 2
    assert found.first_difference is not None
    assert 41 < found.first_difference < 50
    assert found.what_if.seconds_in["s3k1d4"] == pytest.approx(found.seconds)


def test_without_a_table_there_is_no_number_and_it_says_so() -> None:
    subject = _subject([2] * 40 + [40] * 60)
    found = answer(subject, subject.config.policy, LoadModel.RECORDED)
    assert found.what_if.estimate.tok_s is None
    assert found.what_if.regret is None
    assert any("no step-cost table" in text for text in found.cannot_know)
    with pytest.raises(StoreError, match="arrivals are not known"):
        answer(subject, subject.config.policy, LoadModel.ARRIVALS)


def test_a_bucket_that_the_table_lacks_is_left_out_of_the_coverage() -> None:
    _, _, subject = _ran(7)
    kind = subject.config.facts.off_kind
    assert kind is not None
    few = load("fa3").costs(OFF, kind, 1.0, 256)
    small = [cost for cost in few if cost.bucket <= 4]
    cut = replace(subject, model=CostModel(small, {}))
    found = answer(cut, with_policy(cut.config, FixedPolicy(tier=OFF)), LoadModel.RECORDED)
    assert 0 < found.what_if.estimate.coverage < 1
    assert any("the rest is left out" in text for text in found.cannot_know)


def test_rates_follow_the_table_and_stop_where_it_does() -> None:
    cells = [
        StepCost(tier="s3k1d4", bucket=at, samples=100, mean_ms=ms, tokens_per_step=2.0 * at)
        for at, ms in ((1, 5.0), (2, 5.0), (8, 8.0), (16, 12.0))
    ]
    model = CostModel(cells, {"s3k1d4": Accept(2.0, 0.0, "table")})
    exact = model.rate("s3k1d4", 8, ContextBand.UP_TO_1K)
    assert exact is not None
    assert exact.tok_s == pytest.approx(8 * 2 / 8.0 * 1000)
    between = model.rate("s3k1d4", 12, ContextBand.UP_TO_1K)
    assert between is not None
    assert between.tok_s == pytest.approx(12 * 2 / 10.0 * 1000)
    assert model.rate("s3k1d4", 3, ContextBand.UP_TO_1K) is None  # bucket 4 is not in it
    assert model.rate("s3k1d4", 17, ContextBand.UP_TO_1K) is None
    assert model.rate("s3k1d4", 8, ContextBand.UP_TO_4K) is None
    assert model.rate(OFF, 8, ContextBand.UP_TO_1K) is None


def test_the_fit_finds_what_prompts_really_cost() -> None:
    given, _, subject = _ran(1018)
    prefill = load(given.table).prefill
    fit = subject.fit
    assert fit is not None
    assert fit.stretch == pytest.approx(1.0, abs=0.1)
    assert fit.pass_s * 1000 == pytest.approx(prefill.pass_ms, rel=0.4)
    assert fit.token_s * 1000 == pytest.approx(prefill.draft_token_ms, rel=0.4)


def test_arrivals_bring_all_the_recorded_tokens() -> None:
    given, _, subject = _ran(3)
    moments = subject.moments.moments
    arrivals = arrivals_of(moments)
    assert arrivals is not None
    requests = sum(len(one) for one in arrivals.works)
    assert requests == pytest.approx(len(given.work), rel=0.03)
    tokens = sum(one.tokens or 0 for one in moments)
    assert sum(sum(one) for one in arrivals.works) >= tokens * 0.999


def test_a_queue_serves_all_work_and_no_more() -> None:
    queue = Queue(most=2)
    queue.come([10.0, 20.0, 30.0])
    assert (queue.running, queue.count) == (2, 3)
    assert queue.advance(10.0, 2.0) == pytest.approx(20.0)  # both got 10, the first is done
    assert queue.running == 2
    assert queue.advance(10.0, 100.0) == pytest.approx(40.0)
    assert queue.count == 0


def test_passes_lie_between_one_and_one_each() -> None:
    assert passes(1, 1000) == pytest.approx(1, rel=0.01)
    assert passes(1000, 10) == pytest.approx(10, rel=0.01)
    assert passes(0, 10) == 0


def test_a_policy_file_comes_back_as_it_went(tmp_path: Path) -> None:
    policy = two_tiers(min_accept_length={"s3k1d4": 1.5})
    file = tmp_path / "p.toml"
    file.write_text(policy_text(policy, "from a test"))
    assert read_policy(file) == policy
    (tmp_path / "p.json").write_text(json.dumps({"policy": policy.model_dump(mode="json")}))
    assert read_policy(tmp_path / "p.json") == policy
    for bad in ("nothing=1", "boundaries.5.up_at=3", "boundaries.0.up_at=1", "up_hold_s"):
        with pytest.raises(StoreError):
            edited(policy, [bad])
    (tmp_path / "bad.toml").write_text("[[[")
    with pytest.raises(StoreError, match="neither TOML nor JSON"):
        read_policy(tmp_path / "bad.toml")


def test_the_course_does_not_depend_on_explaining_anything() -> None:
    _, _, subject = _ran(3)
    basis = make_basis(subject.config)
    one = run(basis, subject.moments.moments, follows=True)
    other = run(basis, subject.moments.moments, follows=True)
    assert one.tiers == other.tiers


def test_what_if_has_one_moment_per_fresh_sample() -> None:
    _, ran, subject = _ran(3)
    fresh = sum(ran.track["fresh"])
    assert len(subject.moments.moments) == fresh == len(moments_of(ran.track).moments)


@pytest.mark.timeout(120)
def test_a_stated_fraction_of_the_honesty_study_holds() -> None:
    committed = json.loads(RESULTS.read_text())
    assert committed["trials_of"] == 200
    assert committed["trials_covered"] >= 180
    covered = sum(predict(trial(number)).covered for number in range(1, IN_CI + 1))
    assert covered >= IN_CI - 1
