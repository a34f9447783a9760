"""From what the ranks publish to the answer of ``GET /speculation``."""

from __future__ import annotations

from engine_patch import published
from engine_patch.contract import Identity, JournalEntry, KvSlots, Versions
from engine_patch.contract_words import Mode, SwitchReason
from engine_patch.costs import StepCost
from engine_patch.front import Front
from engine_patch.published import Rank, RankFacts, RankLive

KV = KvSlots(capacity=100, committed=10, evictable=5, reserve=8)


def _rank(dp: int, tp: int, *, tp_size: int = 2, dp_size: int = 1, **live: object) -> Rank:
    facts = RankFacts(
        pid=1,
        dp_rank=dp,
        tp_rank=tp,
        identity=Identity(model="m", tp_size=tp_size, dp_size=dp_size),
        launch_tier="s3k1d4",
    )
    numbers = RankLive.model_validate({"tier": "s3k1d4", "kv": KV} | live)
    return Rank(facts=facts, live=numbers, age_ms=3.21, sample=7)


def _entry(dp: int, seq: int) -> JournalEntry:
    return JournalEntry(
        dp_rank=dp, seq=seq, from_tier="off", to_tier="s3k1d4", reason=SwitchReason.COMMAND,
        step=seq, batch=1,
    )  # fmt: skip


def test_a_rank_that_publishes_nothing_here_is_not_observed() -> None:
    (replica,) = published.replicas([_rank(0, 0, running=4)])
    assert [(rank.tp_rank, rank.observed, rank.tier) for rank in replica.ranks] == [
        (0, True, "s3k1d4"),
        (1, False, None),
    ]
    assert (replica.running, replica.age_ms, replica.sample) == (4, 3.21, 7)


def test_a_rank_before_its_first_numbers_is_not_observed() -> None:
    rank = _rank(0, 0, tp_size=1).model_copy(update={"live": None})
    (replica,) = published.replicas([rank])
    assert [rank.observed for rank in replica.ranks] == [False]


def test_ranks_that_run_different_tiers_are_shown_as_they_are() -> None:
    (replica,) = published.replicas([_rank(0, 0), _rank(0, 1, tier="off", applied_generation=3)])
    assert [rank.tier for rank in replica.ranks] == ["s3k1d4", "off"]
    assert [rank.applied_generation for rank in replica.ranks] == [0, 3]


def test_a_replica_of_another_host_has_ranks_that_are_not_observed() -> None:
    here, elsewhere = published.replicas([_rank(0, 0, tp_size=1, dp_size=2)])
    assert here.ranks[0].observed
    assert not elsewhere.ranks[0].observed


def test_without_any_rank_there_is_no_replica() -> None:
    assert published.replicas([]) == ()


def test_the_journal_is_that_of_each_replicas_first_rank_above_a_number() -> None:
    ranks = [
        _rank(0, 0, dp_size=2, journal_first=2).model_copy(
            update={"journal": (_entry(0, 2), _entry(0, 3))}
        ),
        _rank(0, 1, dp_size=2).model_copy(update={"journal": (_entry(0, 2), _entry(0, 3))}),
        _rank(1, 0, dp_size=2).model_copy(update={"journal": (_entry(1, 3),)}),
    ]
    entries, first = published.journal(ranks, since=2)
    assert [(entry.dp_rank, entry.seq) for entry in entries] == [(0, 3), (1, 3)]
    assert first == 2


def test_what_was_asked_comes_from_the_front_and_what_runs_from_the_ranks() -> None:
    front = Front.at_launch("b" * 32, ("off", "s3k1d4"), "s3k1d4").model_copy(
        update={"mode": Mode.OFF, "tier": "off", "epoch": 2, "generation": 9}
    )
    state = published.assemble(
        front,
        [_rank(0, 0, tp_size=1)],
        0,
        identity=Identity(model="m"),
        versions=Versions(engine="sglang", engine_version="1", plugin_version="1"),
        capabilities=(),
        tiers=(),
        uptime_s=1.23456,
    )
    assert (state.mode, state.desired_tier, state.generation) == (Mode.OFF, "off", 9)
    assert state.replicas[0].ranks[0].tier == "s3k1d4"
    assert state.replicas[0].ranks[0].applied_generation == 0
    assert state.uptime_s == 1.235


def test_only_ranks_that_stopped_deciding_are_faults() -> None:
    ranks = [_rank(0, 0), _rank(0, 1, fault="the policy failed")]
    assert published.faults(ranks) == {"DP 0 TP 1": "the policy failed"}


def _cost(samples: int, mean: float, tokens: float | None = 4.0, bucket: int = 4) -> StepCost:
    return StepCost(
        tier="off",
        bucket=bucket,
        samples=samples,
        mean_ms=mean,
        var_ms2=1.0,
        tokens_per_step=tokens,
    )


def test_step_times_of_replicas_are_put_together_by_their_samples() -> None:
    (cell,) = published.merged([[_cost(1, 10.0, 2.0)], [_cost(3, 14.0, 4.0)], []])
    assert (cell.samples, cell.mean_ms, cell.tokens_per_step) == (4, 13.0, 3.5)
    # Spread within the replicas, and between their means.
    assert cell.var_ms2 == 1.0 + 0.25 * 0.75 * 16


def test_cells_that_one_replica_alone_has_are_kept_in_order() -> None:
    table = published.merged([[_cost(5, 9.0, bucket=8)], [_cost(5, 7.0, None, bucket=2)]])
    assert [(cell.bucket, cell.mean_ms) for cell in table] == [(2, 7.0), (8, 9.0)]
    (cell,) = published.merged([[_cost(1, 1.0, None)], [_cost(1, 1.0, 3.0)]])
    assert cell.tokens_per_step == 3.0
