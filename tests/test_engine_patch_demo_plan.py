"""The demo's phases: fixed work, equal time when off, the wall time asked for."""

from __future__ import annotations

import itertools
import json

import pytest

from controlplane.load_plan import LoadPlan
from engine_patch.contract_words import OffKind
from engine_patch.demo_plan import (
    BUSY_CLIENTS,
    HOLDS_PER_PHASE,
    ON,
    QUIET_CLIENTS,
    SPREAD,
    Holds,
    Plan,
    TooShortError,
    boundary,
    fixed_run,
    size,
)
from engine_patch.embedded.table import Table, load
from engine_patch.tier import OFF
from store.policies import HysteresisPolicy

TABLES = ("fa3", "triton")
OFF_KIND = OffKind.PLAIN_PATH


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> Table:
    return load(request.param)


@pytest.fixture
def plan(table: Table) -> Plan:
    return size(table, 30.0, Holds())


def test_phases_take_equal_time_with_speculation_off(plan: Plan) -> None:
    assert max(plan.off_s) / min(plan.off_s) < 1.01


def test_phases_swing_between_quiet_and_busy_beginning_quiet(plan: Plan) -> None:
    clients = [phase.concurrency for phase in plan.phases]
    assert clients == [QUIET_CLIENTS, BUSY_CLIENTS, QUIET_CLIENTS, BUSY_CLIENTS]


def test_speculation_pays_in_quiet_phases_only_and_in_neither_mode_overall(plan: Plan) -> None:
    for phase, off_s, on_s in zip(plan.phases, plan.off_s, plan.on_s, strict=True):
        assert (on_s < off_s) == (phase.concurrency == QUIET_CLIENTS)
    # What the dynamic run can gain must be worth showing: more than a tenth on either mode.
    assert min(sum(plan.on_s), sum(plan.off_s)) / plan.best_s > 1.1


@pytest.mark.parametrize("seconds", [12.0, 20.0, 30.0, 75.0])
def test_the_whole_takes_the_seconds_asked_for(table: Table, seconds: float) -> None:
    assert size(table, seconds, Holds()).best_s == pytest.approx(seconds, rel=0.01)


def test_every_phase_lasts_at_least_five_times_the_longest_hold(table: Table) -> None:
    holds = Holds()
    policy = HysteresisPolicy(
        tiers=(ON, OFF),
        boundaries=({"up_at": 2, "down_at": 1},),  # type: ignore[arg-type]
        up_hold_s=holds.up_s,
        down_hold_s=holds.down_s,
        min_dwell_s=holds.dwell_s,
    )
    assert holds.longest_s == policy.longest_hold_s
    for seconds in (8, 11, 14, 23):
        try:
            sized = size(table, float(seconds), holds)
        except TooShortError:
            continue
        assert min(*sized.off_s, *sized.on_s) >= HOLDS_PER_PHASE * holds.longest_s


def test_too_short_a_run_is_refused_with_a_length_that_is_then_accepted(table: Table) -> None:
    with pytest.raises(TooShortError, match="the least is") as caught:
        size(table, 5.0, Holds())
    least = float(str(caught.value).rpartition("the least is ")[2].removesuffix(" s"))
    size(table, least, Holds())


def test_another_seed_is_other_traffic_of_the_same_duration(table: Table) -> None:
    one, other = (size(table, 15.0, Holds(), seed) for seed in (1, 100))
    assert one.phases != other.phases
    assert other.off_s == pytest.approx(one.off_s, rel=0.01)
    assert size(table, 15.0, Holds(), 1) == one


def test_lengths_spread_so_that_answers_do_not_meet_in_one_instant(plan: Plan) -> None:
    busy = next(phase for phase in plan.phases if phase.concurrency == BUSY_CLIENTS)
    lengths = sorted(output for _, output in busy.requests)
    mean = busy.tokens / len(lengths)
    assert lengths[-1] - lengths[0] == pytest.approx(2 * SPREAD * mean, rel=0.05)
    together = max(len(list(group)) for _, group in itertools.groupby(lengths))
    assert together <= BUSY_CLIENTS / 32


def test_the_same_file_is_read_by_the_load_generator(plan: Plan) -> None:
    read = LoadPlan.parse(json.dumps(plan.document()))
    assert [phase.output_tokens for phase in read.phases] == [p.tokens for p in plan.phases]
    assert [phase.requests for phase in read.phases] == [p.requests for p in plan.phases]


def test_fixed_runs_are_the_same_each_time(table: Table, plan: Plan) -> None:
    assert fixed_run(table, plan.phases, OFF) == plan.off_s


def test_the_boundary_lies_around_the_batch_where_off_overtakes(table: Table) -> None:
    up_at, down_at = boundary(table)
    on = table.column(ON, OFF_KIND).step_times()
    off = table.column(OFF, OFF_KIND).step_times()
    assert 2.0 / on[down_at] > 1.0 / off[down_at]
    assert 2.0 / on[up_at] < 1.0 / off[up_at]
    assert QUIET_CLIENTS < down_at < up_at < BUSY_CLIENTS
