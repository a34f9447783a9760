"""A rank's bookkeeping where a real server cannot be brought: defects, fixed shapes, refusals.

The stand-ins carry the attributes that the hooks read.  Everything else about a rank is tested in
real servers (``tests/engine``).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_patch import adapter_policy, adapter_rank, adapter_scheduler
from engine_patch.adapter_launch import BUILT_VARIABLE
from engine_patch.contract import Identity, Mode
from engine_patch.observer import Observer
from engine_patch.published import RankFacts, RankLive
from engine_patch.shm import RankFile
from engine_patch.wire import RankCommand, encode

DECODE = SimpleNamespace(is_decode=lambda: True, is_extend=lambda: False)
EXTEND = SimpleNamespace(is_decode=lambda: False, is_extend=lambda: True)
TIERS = ("off", "s1k1d2", "s3k1d4")


class Scheduler:
    """What a rank reads of SGLang's scheduler."""

    def __init__(self) -> None:
        self.running_batch = SimpleNamespace(reqs=[])
        self.waiting_queue: list[object] = []
        self.grammar_manager = SimpleNamespace(grammar_queue=[])
        self.chunked_req = None
        self.pool = SimpleNamespace(full_num_used=0, full_available_size=100, full_evictable_size=0)
        self.pool_stats_observer = SimpleNamespace(get_pool_stats=lambda: self.pool)


@pytest.fixture
def scheduler() -> Scheduler:
    """An idle scheduler."""
    return Scheduler()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_policy, "_policy", None)
    monkeypatch.setattr(adapter_scheduler, "_rank", None)
    monkeypatch.setattr(adapter_scheduler, "_complained", False)
    monkeypatch.setattr(adapter_rank, "reserve_per_request", lambda: 8)
    monkeypatch.setenv(BUILT_VARIABLE, ",".join(TIERS))


def _facts(**changes: object) -> RankFacts:
    fields: dict[str, object] = {
        "pid": 1,
        "identity": Identity(model="m", algorithm="EAGLE3"),
        "launch_tier": "s3k1d4",
    }
    return RankFacts.model_validate(fields | changes)


def _adaptive(scheduler: Scheduler, folder: Path) -> adapter_rank.Rank:
    policy = adapter_policy.TierPolicy(3)
    worker = SimpleNamespace(speculative_num_steps=3)

    def activate(steps: int) -> None:
        worker.speculative_num_steps = steps

    policy.controller = SimpleNamespace(worker=worker, _activate=activate)
    return adapter_rank.Rank(scheduler, RankFile.create(folder, 0, 0, 0), _facts(), policy)


def _live(folder: Path) -> RankLive:
    (rank,) = Observer(folder).ranks()
    assert rank.live is not None
    return rank.live


def _batch(mode: Any, size: int, **more: object) -> Any:
    return SimpleNamespace(forward_mode=mode, reqs=[None] * size, extend_num_tokens=None, **more)


def test_an_idle_engine_obeys_at_once_and_reports_what_its_worker_runs(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    assert rank.command(encode(RankCommand(mode=Mode.OFF, epoch=1, generation=2), TIERS))
    assert (_live(tmp_path).tier, _live(tmp_path).wanted) == ("s3k1d4", "off")
    rank.idle()
    live = _live(tmp_path)
    assert (live.tier, live.applied_epoch, live.applied_generation) == ("off", 1, 2)


def test_a_busy_engine_waits_for_the_head_of_the_next_decode_batch(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    scheduler.running_batch.reqs = [None]
    rank.command(encode(RankCommand(mode=Mode.OFF), TIERS))
    rank.idle()  # a stall: nothing can run although requests are there
    assert _live(tmp_path).tier == "s3k1d4"
    policy = adapter_policy.policy()
    assert policy is not None
    assert policy.get_steps_for_batch(1) == 0


def test_a_moment_without_requests_moves_nothing_in_auto(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    thresholds = {
        "tiers": ("s3k1d4", "off"),
        "boundaries": ({"up_at": 4, "down_at": 2},),
        "min_dwell_steps": 1,
    }
    command = RankCommand.model_validate({"mode": "auto", "thresholds": thresholds})
    rank.command(encode(command, TIERS))
    policy = adapter_policy.policy()
    assert policy is not None
    assert [policy.get_steps_for_batch(size) for size in (8, 8, 8)] == [0, 0, 0]
    rank.idle()
    assert rank.chooser is not None
    assert (rank.chooser.tier, rank.chooser.switches) == ("off", 1)


def test_numbers_that_are_no_command_are_refused_in_words(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    assert not rank.command({"specdeck.mode": 9})
    assert "not a specdeck command" in _live(tmp_path).refused


def test_a_fixed_shape_is_measured_and_takes_no_command(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    facts = _facts(launch_tier="s2k4d8", unsupported="this server runs one fixed shape")
    rank = adapter_rank.Rank(scheduler, RankFile.create(tmp_path, 0, 0, 0), facts, None)
    batch = _batch(DECODE, 2)
    result = SimpleNamespace(num_correct_drafts_per_req_cpu=[1, 2], can_run_cuda_graph=False)
    rank.launched(batch, result)
    rank.finished(batch, result)
    assert not rank.command(encode(RankCommand(mode=Mode.OFF), TIERS))
    live = _live(tmp_path)
    assert (live.tier, live.decode_tokens, live.verify_steps) == ("s2k4d8", 5, 1)
    assert live.accept is not None
    assert (live.accept.tier, live.accept.length) == ("s2k4d8", 2.5)
    # Without graphs no step misses one.
    assert live.graph_misses == 0
    assert live.refused == "this server runs one fixed shape"


def test_steps_without_a_graph_are_counted_where_there_are_graphs(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    facts = _facts(graphs=True, unsupported="fixed")
    rank = adapter_rank.Rank(scheduler, RankFile.create(tmp_path, 0, 0, 0), facts, None)
    for replayed in (True, False, False):
        result = SimpleNamespace(num_correct_drafts_per_req_cpu=[0], can_run_cuda_graph=replayed)
        rank.finished(_batch(DECODE, 1), result)
    rank.publish()
    assert _live(tmp_path).graph_misses == 2


def test_a_prefill_is_published_before_it_runs(scheduler: Scheduler, tmp_path: Path) -> None:
    rank = _adaptive(scheduler, tmp_path)
    batch = _batch(EXTEND, 3)
    batch.extend_num_tokens = 500
    rank.launching(batch)
    live = _live(tmp_path)
    assert (live.prefilling, live.prefill_tokens, live.running) == (3, 500, 0)
    rank.finished(batch, SimpleNamespace())
    rank.publish()
    # They join the running batch with the next pass; until then they are counted as running.
    assert (_live(tmp_path).prefilling, _live(tmp_path).running) == (0, 3)


def test_the_reserve_is_shown_apart_and_never_more_than_is_used(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    scheduler.running_batch.reqs = [None] * 4
    for used, reserve in ((100, 32), (20, 20), (0, 0)):
        scheduler.pool.full_num_used = used
        rank.publish()
        kv = _live(tmp_path).kv
        assert (kv.reserve, kv.committed) == (reserve, used - reserve)


def test_a_rank_that_cannot_publish_decides_on_like_the_others(
    scheduler: Scheduler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    scheduler.pool_stats_observer = SimpleNamespace(get_pool_stats=lambda: 1 / 0)
    batch = _batch(DECODE, 2)
    for _ in range(3):
        result = SimpleNamespace(num_correct_drafts_per_req_cpu=[1, 2], can_run_cuda_graph=True)
        rank.launching(batch)
        rank.launched(batch, result)
        rank.finished(batch, result)
        rank.publish()
    assert rank.chooser is not None
    assert rank.chooser.window.requests == 6
    assert rank.command(encode(RankCommand(mode=Mode.OFF), TIERS))
    assert caplog.text.count("this rank stops publishing") == 1


def test_a_defect_in_the_bookkeeping_ends_no_batch_and_is_logged_once(
    scheduler: Scheduler,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter_scheduler, "_rank", _adaptive(scheduler, tmp_path))
    for _ in range(3):
        assert adapter_scheduler.run_batch(lambda *_: "result", scheduler, object()) == "result"
    assert caplog.text.count("a step of bookkeeping fails") == 1


def test_a_defect_in_the_policy_keeps_the_tier_and_is_told(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    policy = adapter_policy.policy()
    assert policy is not None
    assert rank.chooser is not None
    monkeypatch.setattr(rank.chooser, "next_tier", lambda _: 1 / 0)
    assert [policy.get_steps_for_batch(4) for _ in range(3)] == [3, 3, 3]
    rank.publish()
    assert "the policy failed and keeps s3k1d4" in _live(tmp_path).fault


def test_before_a_rank_is_complete_the_launch_tier_runs() -> None:
    policy = adapter_policy.TierPolicy(3)
    assert policy.get_steps_for_batch(100) == 3
    assert policy.on_verify_complete([3, 3], 2) is None
    assert policy.candidate_steps == [0, 1, 3]


def test_building_a_tier_is_timed_and_the_worker_left_as_it_was() -> None:
    policy = adapter_policy.TierPolicy(3)

    class Worker:
        def build_adaptive_runtime_state(self, speculative_num_steps: int, **_: object) -> int:
            return speculative_num_steps

    worker = Worker()
    controller = SimpleNamespace(worker=worker, params=policy)
    built = []

    def init_states(controller: Any, cuda_graph_bs: list[int] | None = None) -> None:
        build = controller.worker.build_adaptive_runtime_state
        named = {"speculative_num_draft_tokens": 2, "cuda_graph_bs": cuda_graph_bs}
        built.extend(build(speculative_num_steps=steps, **named) for steps in (0, 1))

    adapter_policy.measure_builds(init_states, controller, cuda_graph_bs=[1, 2])
    assert built == [0, 1]
    assert set(policy.costs) == {"off", "s1k1d2"}
    assert "build_adaptive_runtime_state" not in vars(worker)
    assert policy.controller is controller
