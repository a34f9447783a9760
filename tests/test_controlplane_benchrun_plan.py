"""The order of runs, the time they get, and where spare time goes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from controlplane.bench_records import BenchPoint
from controlplane.benchrun_plan import WINDOW_LEAST_S, WINDOW_MOST_S, make_plan
from controlplane.benchrun_refine import chooser, finer
from controlplane.benchrun_window import Load

TIERS = ("off", "s1k1d2", "s3k1d4")


def test_tiers_go_forth_and_back_at_each_load() -> None:
    plan = make_plan(TIERS, [Load(1), Load(8)], 2, 600.0)
    order = [(run.load.clients, run.tier, run.repeat) for run in plan.runs]
    assert order[:6] == [
        (1, "off", 1), (1, "s1k1d2", 1), (1, "s3k1d4", 1),
        (1, "s3k1d4", 2), (1, "s1k1d2", 2), (1, "off", 2),
    ]  # fmt: skip
    blocks = Counter(run.block for run in plan.runs)
    assert set(blocks.values()) == {3}


def test_a_tier_is_not_measured_above_what_it_serves() -> None:
    plan = make_plan(TIERS, [Load(1), Load(8)], 2, 600.0, most={"s3k1d4": 4})
    assert {run.load.clients for run in plan.runs if run.tier == "s3k1d4"} == {1}
    assert len(plan.runs) == 6 + 4
    assert len(make_plan(TIERS, [Load(8)], 1, 600.0, most=dict.fromkeys(TIERS, 4)).runs) == 3


def test_with_little_time_windows_shrink_first_and_then_repeats_go() -> None:
    loads = [Load(at) for at in (1, 4, 16, 64)]
    roomy, tight, tiny = (make_plan(TIERS, loads, 3, budget) for budget in (600.0, 60.0, 5.0))
    assert len(roomy.runs) == len(tight.runs) + 12 == 36
    assert roomy.window_s > WINDOW_LEAST_S
    assert len(tiny.runs) == 12
    assert tiny.window_s == WINDOW_LEAST_S


@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 1024), min_size=1, max_size=6, unique=True),
    st.integers(1, 5),
    st.floats(1, 5000),
)
def test_a_plan_keeps_its_budget_unless_one_pass_alone_is_more(
    tiers: int, clients: list[int], repeats: int, budget_s: float
) -> None:
    names = ("off", "s1k1d2", "s2k1d3", "s3k1d4")[:tiers]
    plan = make_plan(names, [Load(at) for at in clients], repeats, budget_s)
    assert WINDOW_LEAST_S <= plan.window_s <= WINDOW_MOST_S
    passes = len(plan.runs) // (tiers * len(clients))
    assert 1 <= passes <= repeats
    if passes > 1:
        assert plan.seconds <= budget_s
    seen = {(run.tier, run.load, run.repeat) for run in plan.runs}
    assert len(seen) == len(plan.runs)


def speeds(tier: str, at: int, repeat: int) -> float:
    """off is slower at 1, faster at 64, and a few per cent apart at 16."""
    ratio = {1: 1.5, 16: 1.02, 64: 0.7}.get(at, 1.0) if tier != "off" else 1.0
    return 200.0 * at * ratio * (1 + 0.03 * ((-1) ** repeat) * (1 if tier == "off" else -1))


def test_spare_time_goes_to_the_load_that_is_least_certain() -> None:
    loads = [Load(1), Load(16), Load(64)]
    plan = make_plan(("off", "s3k1d4"), loads, 2, 60.0, window_s=1.0)
    points = [
        BenchPoint(
            tier=run.tier,
            concurrency=run.load.clients,
            tok_s=speeds(run.tier, run.load.clients, run.repeat),
            repeat=run.repeat,
            block=run.block,
        )
        for run in plan.runs
    ]
    choose = chooser(("off", "s3k1d4"), loads, 1.0)
    more = choose(points, plan.runs, 60.0)
    assert more is not None
    assert [run.tier for run in more.runs] == ["off", "s3k1d4", "s3k1d4", "off"]
    at = {run.load.clients for run in more.runs}
    assert at <= {4, 16, 32}
    assert more.reason
    if at == {16}:
        assert [run.repeat for run in more.runs] == [3, 3, 4, 4]
    assert choose(points, plan.runs, 1.0) is None


def test_nothing_is_refined_without_a_base_or_with_arrivals() -> None:
    assert chooser(("s1k1d2", "s3k1d4"), [Load(1)], 1.0)([], (), 100.0) is None
    assert chooser(("off", "s3k1d4"), [Load(0, 2.0)], 1.0)([], (), 100.0) is None


def test_the_grid_has_the_geometric_middles() -> None:
    assert finer((1, 4, 16, 64)) == (1, 2, 4, 8, 16, 32, 64)
    assert finer((3,)) == (3,)
