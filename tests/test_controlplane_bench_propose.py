"""Thresholds from a benchmark, and their form for other engines."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane import bench_export
from controlplane.bench_choice import chosen
from controlplane.bench_export import ExportError, Keys, Target
from controlplane.bench_propose import OffRule, Proposal, ProposalError, propose
from controlplane.bench_read import read
from controlplane.bench_records import BenchPoint
from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF

KIT = Path(__file__).parent / "samples/h200-0.5.17"
RESULTS = Path(__file__).parent / "benchmarks/results"
GRID = (1, 4, 16, 64, 128, 256)


def _runs(speeds: dict[str, tuple[float, ...]], grid: tuple[int, ...] = GRID) -> list[BenchPoint]:
    return [
        BenchPoint(tier=tier, concurrency=at, tok_s=speed)
        for tier, row in speeds.items()
        for at, speed in zip(grid, row, strict=True)
    ]


def _recorded(backend: str, label: str) -> tuple[BenchPoint, ...]:
    file = chosen(read(KIT / "bench.jsonl"), backend=backend, label=label)
    return tuple(run for run in file.points if run.tier != OFF)


def _tier_at(proposal: Proposal, batch: int) -> str:
    """What the thresholds run at a load that rises to ``batch`` from nothing."""
    place = sum(batch >= boundary.up_at for boundary in proposal.thresholds.boundaries)
    return proposal.thresholds.tiers[place]


def _tier_back_at(proposal: Proposal, batch: int) -> str:
    """The same for a load that falls to ``batch`` from far above."""
    boundaries = proposal.thresholds.boundaries
    place = len(boundaries) - sum(batch <= boundary.down_at for boundary in boundaries)
    return proposal.thresholds.tiers[place]


def test_the_recorded_curves_give_the_crossings_that_were_read_by_hand() -> None:
    for backend, label, low, high in (
        ("fa3", "acc2.0", 64, 128),
        ("triton", "acc2.0", 16, 25),
        ("triton", "acc3.0", 40, 64),
    ):
        proposal = propose(_recorded(backend, label))
        assert proposal.policy.tiers == ("s3k1d4", "off")
        (boundary,) = proposal.policy.boundaries
        assert low < boundary.up_at <= high, (backend, label)
        assert proposal.worst_share_of_best == 1


def test_where_off_never_wins_it_stays_for_the_guards() -> None:
    proposal = propose(_recorded("fa3", "acc3.0"))
    assert proposal.policy.tiers == ("s3k1d4", "off")
    assert proposal.policy.boundaries[0].up_at > 256
    assert "gives KV slots back" in " ".join(proposal.notes)


def test_where_speculation_never_wins_it_runs_only_in_a_quiet_engine() -> None:
    proposal = propose(_runs({"s3k1d4": (90, 80, 70, 60, 50, 40), "off": (100,) * 6}))
    assert proposal.policy.tiers == ("s3k1d4", "off")
    assert (proposal.policy.boundaries[0].up_at, proposal.policy.boundaries[0].down_at) == (1, 0)


def test_a_slow_off_is_not_proposed() -> None:
    runs = _runs({"s3k1d4": (150, 150, 150, 100, 80, 60), "plain": (100,) * 6})
    runs += [
        run.model_copy(update={"tier": "off", "off_kind": OffKind.ONE_TOKEN_VERIFY, "tok_s": 30.0})
        for run in runs
        if run.tier == "plain" and run.concurrency >= 128
    ]
    proposal = propose(runs)
    assert proposal.policy.tiers == ("s3k1d4",)
    assert any("one-token verify is slower" in note for note in proposal.notes)


def test_three_tiers_are_ordered_from_tree_to_off() -> None:
    proposal = propose(
        _runs(
            {
                "off": (10, 40, 160, 640, 1280, 2560),
                "s2k4d16": (20, 70, 150, 200, 200, 200),
                "s3k1d4": (15, 60, 220, 650, 1000, 1500),
            }
        )
    )
    assert proposal.policy.tiers == ("s2k4d16", "s3k1d4", "off")
    assert [_tier_at(proposal, at) for at in GRID] == ["s2k4d16"] * 2 + ["s3k1d4"] * 2 + ["off"] * 2
    assert proposal.worst_share_of_best == 1
    assert proposal.predicted[0].against["off"] == pytest.approx(1.0)


def test_nothing_is_proposed_from_loads_at_which_off_could_not_be_measured() -> None:
    # On an H200 answers arrived more slowly than off decoded them at 128 and 256 clients: chains
    # alone were left there, and what pays at 16 must not come back because nothing else is known.
    file = read(RESULTS / "gpu-2026-11-30-x1-3/bench-triton.json")
    proposal = propose(file.points)
    assert proposal.thresholds.tiers == ("s3k1d4", "off")
    assert 16 < proposal.thresholds.boundaries[0].up_at <= 64
    assert proposal.worst_share_of_best == 1.0
    assert [one.concurrency for one in proposal.predicted] == [1, 4, 16, 64]
    assert any("measured at 128, 256: off has no usable run" in note for note in proposal.notes)


def test_noise_does_not_order_tiers_against_the_load() -> None:
    proposal = propose(
        _runs({"off": (10, 10.1, 10, 10.2, 10, 12), "s3k1d4": (12, 10, 10.1, 10, 10.1, 9)})
    )
    (boundary,) = proposal.policy.boundaries
    assert proposal.policy.tiers == ("s3k1d4", "off")
    assert boundary.up_at <= 256


@given(
    st.dictionaries(
        st.sampled_from(["s2k4d16", "s3k1d4", "s1k1d2"]),
        st.tuples(*[st.floats(1, 1e6)] * len(GRID)),
        min_size=1,
    ),
    st.tuples(*[st.floats(1, 1e6)] * len(GRID)),
    st.integers(1, 8),
)
@settings(max_examples=100, deadline=None)
def test_every_proposal_is_valid_and_does_what_it_says(
    tiers: dict[str, tuple[float, ...]], off: tuple[float, ...], dp: int
) -> None:
    proposal = propose(_runs(tiers | {"off": off}), dp_size=dp)
    assert 0 < proposal.worst_share_of_best <= 1
    assert proposal.policy.tiers == proposal.thresholds.tiers
    if dp > 1:
        return
    for one in proposal.predicted:
        if proposal.thresholds.boundaries[0].up_at == 1:
            continue
        # No measured load lies in a gap: it gets its tier from below and from above.
        assert _tier_at(proposal, one.concurrency) == one.tier
        if one.concurrency < GRID[-1]:
            assert _tier_back_at(proposal, one.concurrency) == one.tier


def test_replicas_share_the_load() -> None:
    runs = _runs({"s3k1d4": (200, 200, 200, 100, 50, 50), "off": (100,) * 6})
    one, four = propose(runs), propose(runs, dp_size=4)
    assert four.policy.boundaries[0].up_at == -(-one.policy.boundaries[0].up_at // 4)


def test_a_tier_that_lacks_a_point_is_interpolated_and_says_so() -> None:
    runs = _runs({"s3k1d4": (200, 200, 200, 100, 50, 50), "off": (100,) * 6})
    runs = [run for run in runs if (run.tier, run.concurrency) != ("s3k1d4", 4)]
    proposal = propose(runs)
    assert [one.interpolated for one in proposal.predicted][:3] == [(), ("s3k1d4",), ()]


def test_several_setups_are_refused() -> None:
    with pytest.raises(ProposalError, match="choose one with --backend, --tier or --label"):
        propose(read(KIT / "bench.jsonl").points)


def test_nothing_to_choose_between_is_refused() -> None:
    with pytest.raises(ProposalError, match="no speculating tier"):
        propose(_runs({"off": (1,) * 6}))
    with pytest.raises(ProposalError, match="off \\(or a plain server\\)"):
        propose(_runs({"s3k1d4": (1,) * 6}))


# exports


def test_sglangs_config_holds_one_candidate_per_slot_so_that_it_does_not_hunt() -> None:
    slots = json.loads(bench_export.sglang(propose(_recorded("fa3", "acc2.0"), only_chains=True)))
    assert slots["1"] == {"candidate_steps": [3]}
    (busy,) = slots.keys() - {"1"}
    assert slots[busy] == {"candidate_steps": [0]}
    assert 64 < int(busy) <= 128


def test_vllms_ranges_begin_at_1_and_do_not_overlap() -> None:
    proposal = propose(_recorded("triton", "acc2.0"), only_chains=True, off=OffRule.PLAIN)
    config = json.loads(bench_export.vllm(proposal, 256))
    assert config["num_speculative_tokens"] == 3
    ranges = config["num_speculative_tokens_per_batch_size"]
    assert ranges[0][0] == 1
    for (_, end, _), (start, _, _) in itertools.pairwise(ranges):
        assert start == end + 1
    assert [tokens for _, _, tokens in ranges] == [3, 0]
    assert ranges[-1][1] == 256


def test_tensorrt_llm_reads_its_keys_in_two_ways() -> None:
    proposal = propose(_recorded("triton", "acc2.0"), only_chains=True, off=OffRule.PLAIN)
    up_at = proposal.thresholds.boundaries[0].up_at
    upper = json.loads(bench_export.trtllm(proposal, 256))
    assert upper == {"max_draft_len": 3, "draft_len_schedule": {str(up_at - 1): 3}}
    lower = json.loads(bench_export.trtllm(proposal, 256, Keys.LOWER))
    assert lower == {"max_draft_len": 3, "draft_len_schedule": {"1": 3, str(up_at): 0}}


def test_a_tree_cannot_be_written_and_is_left_out_when_asked() -> None:
    runs = _runs({"s2k4d16": (200, 200, 100, 50, 50, 50), "off": (100,) * 6})
    with pytest.raises(ExportError, match="s2k4d16 is a tree"):
        bench_export.sglang(propose(runs))
    runs += _runs({"s3k1d4": (150, 150, 150, 50, 50, 50)})
    proposal = propose(runs, only_chains=True)
    assert "s2k4d16 left out" in " ".join(proposal.notes)
    assert json.loads(bench_export.sglang(proposal))["1"] == {"candidate_steps": [3]}


def test_an_engine_that_never_drafts_has_no_schedule() -> None:
    proposal = propose(_runs({"s3k1d4": (50,) * 6, "off": (100,) * 6}))
    with pytest.raises(ExportError, match="no speculating tier"):
        bench_export.vllm(proposal, 256)
    with pytest.raises(ExportError, match="longest draft"):
        bench_export.trtllm(proposal, 256)


def test_sglangs_reader_is_told_what_its_own_off_is() -> None:
    proposal = propose(_recorded("fa3", "acc2.0"), only_chains=True)
    assert any(
        "one-token verify" in line for line in bench_export.warnings(proposal, Target.SGLANG)
    )


def test_the_csv_has_the_documented_columns_first() -> None:
    rows = list(csv.reader(io.StringIO(bench_export.as_csv(_recorded("fa3", "acc2.0")))))
    assert rows[0][:6] == ["tier", "num_steps", "topk", "num_draft_tokens", "concurrency", "tok_s"]
    assert rows[0][6:9] == ["accept_length", "cap", "repeat"]
    assert rows[1][:4] == ["plain", "0", "", ""]


def test_thresholds_count_the_requests_that_ran_and_not_the_clients() -> None:
    speeds = {"off": {4: 100, 16: 300, 64: 900}, "s3k1d4": {4: 160, 16: 400, 64: 600}}
    points = [
        BenchPoint(tier=tier, concurrency=at, tok_s=speed, running=at / 2)
        for tier, known in speeds.items()
        for at, speed in known.items()
    ]
    (boundary,) = propose(points).policy.boundaries
    assert 8 <= boundary.down_at < boundary.up_at <= 32
    assert "4 clients kept 2 requests running" in propose(points).notes[-1]
    told = [point.model_copy(update={"running": None}) for point in points]
    (by_clients,) = propose(told).policy.boundaries
    assert by_clients.up_at == pytest.approx(2 * boundary.up_at, abs=2)


def test_the_tier_that_wins_alone_runs_while_one_request_does() -> None:
    # A client is between two requests for a moment: its mean running batch is below 1.
    runs = [
        BenchPoint(tier=tier, concurrency=at, tok_s=speed, running=at * 0.93)
        for tier, speeds in (("s2k4d16", (295, 900)), ("s3k1d4", (294, 1100)), ("off", (206, 790)))
        for at, speed in zip((1, 4), speeds, strict=True)
    ]
    proposal = propose(runs)
    assert proposal.thresholds.tiers[:2] == ("s2k4d16", "s3k1d4")
    assert _tier_at(proposal, 1) == _tier_back_at(proposal, 1) == "s2k4d16"
    assert _tier_at(proposal, 4) == "s3k1d4"
