"""A rank's bookkeeping where a real server cannot be brought: defects, fixed shapes, refusals.

The stand-ins carry the attributes that the hooks read.  Everything else about a rank is tested in
real servers (``tests/engine``).
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engine_patch import (
    adapter_cold,
    adapter_off,
    adapter_owed,
    adapter_rank,
    adapter_reserve,
    adapter_room,
    adapter_scheduler,
    adapter_sglang,
    adapter_tiers,
)
from engine_patch.adapter_launch import BUILT_VARIABLE
from engine_patch.contract import Identity
from engine_patch.contract_words import Mode, OffFlavour
from engine_patch.observer import Observer
from engine_patch.published import RankFacts, RankLive
from engine_patch.shm import RankFile
from engine_patch.tier_plan import parse, plan
from engine_patch.wire import REBUILD, RankCommand, encode

DECODE = SimpleNamespace(is_decode=lambda: True, is_extend=lambda: False)
EXTEND = SimpleNamespace(is_decode=lambda: False, is_extend=lambda: True)
TIERS = ("off", "s1k1d2", "s3k1d4")
LENGTHS = {"off": 1, "s1k1d2": 2, "s3k1d4": 4}


class Off:
    """What a rank reads of the way off runs."""

    reason = keep_reason = ""
    flavours = (OffFlavour.KEEP, OffFlavour.WARM, OffFlavour.COLD)
    kind = "plain_path"

    def __init__(self, _: object) -> None:
        pass

    def attention(self) -> None:
        """A drafter that is not tried at start-up."""

    def flavour(self, asked: OffFlavour | None) -> OffFlavour:
        """The asked flavour, else keep."""
        return asked or OffFlavour.KEEP

    def plain_runner(self) -> Any:
        """Nothing to swap."""
        return contextlib.nullcontext()


class Worker:
    """What the controller touches of SGLang's worker."""

    def __init__(self) -> None:
        self.topk = 1
        self.speculative_num_steps = 3
        self.speculative_num_draft_tokens = 4
        self._draft_worker = SimpleNamespace(topk=1)
        self.built: list[int] = []

    def build_adaptive_runtime_state(
        self, speculative_num_steps: int, speculative_num_draft_tokens: int, cuda_graph_bs: object
    ) -> Any:
        """A state that only knows its step count."""
        del cuda_graph_bs
        self.built.append(speculative_num_steps)
        return SimpleNamespace(
            speculative_num_steps=speculative_num_steps,
            speculative_num_draft_tokens=speculative_num_draft_tokens,
        )

    def apply_runtime_state(self, state: Any) -> None:
        """As SGLang's: nothing at an equal step count."""
        if self.speculative_num_steps != state.speculative_num_steps:
            self.speculative_num_steps = state.speculative_num_steps


def _controller() -> adapter_tiers.TierController:
    worker = Worker()
    tiers = adapter_tiers.TierController(worker)
    tiers.register(worker.build_adaptive_runtime_state(3, 4, None))
    tiers.init_states()
    return tiers


def _steps(tiers: adapter_tiers.TierController, *batches: int) -> list[int]:
    """Step counts that the worker runs at the heads of these batches."""
    said = []
    for batch in batches:
        tiers.activate_step_by_batch(batch)
        said.append(tiers.worker.speculative_num_steps)
    return said


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
    monkeypatch.setattr(adapter_tiers, "_controller", None)
    monkeypatch.setattr(adapter_sglang, "forget_switch", lambda: None)
    monkeypatch.setattr(adapter_off, "Off", Off)
    monkeypatch.setattr(adapter_room, "memory_setting", lambda _: None)
    monkeypatch.setattr(adapter_reserve, "_lengths", dict(LENGTHS))
    monkeypatch.setattr(adapter_scheduler, "_rank", None)
    monkeypatch.setattr(adapter_scheduler, "_complained", False)
    monkeypatch.setattr(adapter_rank, "reserve_per_request", lambda: 8)
    monkeypatch.delenv(adapter_reserve.VARIABLE, raising=False)
    monkeypatch.setenv(BUILT_VARIABLE, plan(",".join(TIERS), None, parse("s3k1d4")[0]).dump())


def _facts(**changes: object) -> RankFacts:
    fields: dict[str, object] = {
        "pid": 1,
        "identity": Identity(model="m", algorithm="EAGLE3"),
        "launch_tier": "s3k1d4",
    }
    return RankFacts.model_validate(fields | changes)


def _adaptive(scheduler: Scheduler, folder: Path) -> adapter_rank.Rank:
    file = RankFile.create(folder, 0, 0, 0)
    facts = _facts(planned=TIERS, reserve_follows=True)
    return adapter_rank.Rank(scheduler, file, facts, _controller())


def _live(folder: Path) -> RankLive:
    (rank,) = Observer(folder).ranks()
    assert rank.live is not None
    return rank.live


def _batch(mode: Any, size: int, **more: object) -> Any:
    requests = [SimpleNamespace(origin_input_ids=[1], output_ids=[2]) for _ in range(size)]
    return SimpleNamespace(forward_mode=mode, reqs=requests, extend_num_tokens=None, **more)


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
    tiers = adapter_tiers.controller()
    assert tiers is not None
    assert _steps(tiers, 1) == [0]


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
    tiers = adapter_tiers.controller()
    assert tiers is not None
    assert _steps(tiers, 8, 8, 8) == [0, 0, 0]
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
    tiers = adapter_tiers.controller()
    assert tiers is not None
    assert rank.chooser is not None
    monkeypatch.setattr(rank.chooser, "next_tier", lambda *_, **__: 1 / 0)
    assert _steps(tiers, 4, 4, 4) == [3, 3, 3]
    rank.publish()
    assert "the policy failed and keeps s3k1d4" in _live(tmp_path).fault


def test_before_a_rank_is_complete_the_launch_tier_runs() -> None:
    tiers = _controller()
    assert _steps(tiers, 100) == [3]
    assert tiers.on_verify_complete([3, 3], 2) is None  # type: ignore[func-returns-value]
    assert (tiers.tiers, tiers.worker.built) == (TIERS, [3, 0, 1])
    assert set(tiers.costs) == {"off", "s1k1d2"}


def test_a_larger_tier_waits_one_batch_for_its_slots(scheduler: Scheduler, tmp_path: Path) -> None:
    rank = _adaptive(scheduler, tmp_path)
    tiers = adapter_tiers.controller()
    assert tiers is not None
    rank.command(encode(RankCommand(mode=Mode.ON, tier="s1k1d2"), TIERS))
    assert _steps(tiers, 2) == [1]  # needs no more than was reserved
    rank.command(encode(RankCommand(mode=Mode.ON, tier="s3k1d4"), TIERS))
    assert _steps(tiers, 2) == [1]
    assert (tiers.active, tiers.announced) == ("s1k1d2", "s3k1d4")
    assert _steps(tiers, 2) == [3]


def test_a_reserve_for_all_tiers_makes_no_tier_wait(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(adapter_reserve.VARIABLE, "all")
    rank = _adaptive(scheduler, tmp_path)
    tiers = adapter_tiers.controller()
    assert tiers is not None
    for name, steps in (("s1k1d2", 1), ("s3k1d4", 3)):
        rank.command(encode(RankCommand(mode=Mode.ON, tier=name), TIERS))
        assert _steps(tiers, 2) == [steps]


def test_after_keep_or_cold_a_bridge_comes_before_the_first_draft(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    tiers = adapter_tiers.controller()
    assert tiers is not None
    for flavour, bridges in ((OffFlavour.KEEP, 1), (OffFlavour.WARM, 1), (OffFlavour.COLD, 2)):
        off = RankCommand(mode=Mode.OFF, off_flavour=flavour)
        rank.command(encode(off, TIERS))
        assert _steps(tiers, 2, 2) == [0, 0]
        assert tiers.round.flavour is flavour
        rank.command(encode(RankCommand(mode=Mode.ON, tier="s1k1d2"), TIERS))
        seen = _steps(tiers, 2, 2, 2)
        # The batch that waits for its slots is the bridge.
        assert seen == [0, 1, 1]
        assert tiers.bridges == bridges


@pytest.mark.parametrize("flavour", list(OffFlavour))
def test_the_first_batch_after_an_idle_off_is_the_bridge_where_it_waits_for_slots(
    scheduler: Scheduler, tmp_path: Path, flavour: OffFlavour
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    tiers = adapter_tiers.controller()
    assert tiers is not None
    rank.command(encode(RankCommand(mode=Mode.OFF, off_flavour=flavour), TIERS))
    rank.idle()
    rank.command(encode(RankCommand(mode=Mode.ON, tier="s1k1d2"), TIERS))
    assert _steps(tiers, 2, 2, 2) == [0, 1, 1]


def test_a_move_up_without_free_slots_is_refused_with_both_numbers(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    rank.command(encode(RankCommand(mode=Mode.OFF), TIERS))
    rank.idle()
    scheduler.running_batch.reqs = [SimpleNamespace()] * 20
    assert not rank.command(encode(RankCommand(mode=Mode.ON, tier="s3k1d4"), TIERS))
    assert "kv_short: tier s3k1d4 needs 120 more KV slots, 100 are free" in _live(tmp_path).refused
    assert rank.command(encode(RankCommand(mode=Mode.ON, tier="s1k1d2"), TIERS))


def test_a_tier_that_this_replica_did_not_build_is_refused(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    rank._facts = rank._facts.model_copy(update={"planned": (*TIERS, "s5k1d6")})
    planned = rank._facts.planned
    assert not rank.command(encode(RankCommand(mode=Mode.ON, tier="s5k1d6"), planned))
    assert "tier s5k1d6 was not built on this replica" in _live(tmp_path).refused


def test_requests_of_a_cold_spell_are_kept_apart_until_they_are_prefilled_again() -> None:
    whole, holed = SimpleNamespace(), SimpleNamespace(skip_radix_cache_insert=False)
    adapter_cold.mark([holed])
    adapter_cold.mark([holed])
    assert holed.skip_radix_cache_insert
    assert adapter_cold.count([whole, holed]) == 1
    assert adapter_cold.without([2, 3], [whole, holed]) == [2]
    adapter_cold.forget([whole, holed])
    assert not holed.skip_radix_cache_insert
    assert adapter_cold.without([2, 3], [whole, holed]) == [2, 3]


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's two messages of a pause."""
    module = ModuleType("sglang.srt.managers.io_struct")
    for name in ("PauseGenerationReqInput", "ContinueGenerationReqInput"):
        setattr(module, name, SimpleNamespace)
    for name in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


class Pausing(Scheduler):
    """A scheduler that can retract what it runs and go on."""

    def __init__(self) -> None:
        super().__init__()
        self.last_batch = None
        self._engine_paused = False
        self.seen: list[str] = []

    def pause_generation(self, request: SimpleNamespace) -> None:
        """Retract all."""
        assert request.mode == "retract"
        self.seen.append("pause")
        self.running_batch.reqs = []

    def continue_generation(self, request: SimpleNamespace) -> None:
        """Go on."""
        assert not request.torch_empty_cache
        self.seen.append("continue")


def _request() -> SimpleNamespace:
    return SimpleNamespace(finished=lambda: False)


def test_only_requests_with_a_hole_are_a_reason_to_rebuild(messages: None, tmp_path: Path) -> None:
    scheduler = Pausing()
    rank = _adaptive(scheduler, tmp_path)
    scheduler.running_batch.reqs = [_request(), _request()]
    assert rank.command(REBUILD)
    assert (scheduler.seen, _live(tmp_path).rebuilt_requests) == ([], 0)
    adapter_cold.mark(scheduler.running_batch.reqs[:1])
    assert rank.command(REBUILD)
    assert scheduler.seen == ["pause", "continue"]
    assert (_live(tmp_path).rebuilt_requests, _live(tmp_path).refused) == (1, "")


def test_nothing_is_rebuilt_while_off_runs_cold_or_the_engine_is_paused(
    messages: None, tmp_path: Path
) -> None:
    scheduler = Pausing()
    rank = _adaptive(scheduler, tmp_path)
    rank.command(encode(RankCommand(mode=Mode.OFF, off_flavour=OffFlavour.COLD), TIERS))
    rank.idle()
    scheduler.running_batch.reqs = [_request()]
    adapter_cold.mark(scheduler.running_batch.reqs)
    assert not rank.command(REBUILD)
    assert "off runs cold" in _live(tmp_path).refused
    rank.command(encode(RankCommand(mode=Mode.OFF, off_flavour=OffFlavour.KEEP), TIERS))
    scheduler._engine_paused = True
    assert not rank.command(REBUILD)
    assert "paused" in _live(tmp_path).refused
    assert scheduler.seen == []


def test_steps_from_a_command_to_its_tier_are_counted(scheduler: Scheduler, tmp_path: Path) -> None:
    rank = _adaptive(scheduler, tmp_path)
    tiers = adapter_tiers.controller()
    assert tiers is not None

    def step() -> int | None:
        _steps(tiers, 2)
        rank.launched(_batch(DECODE, 2), SimpleNamespace())
        rank.publish()
        return _live(tmp_path).confirm_steps

    assert step() is None
    for command, taken in (
        (RankCommand(mode=Mode.OFF), (1,)),
        # Its slots, and a whole round of the drafter, in one step.
        (RankCommand(mode=Mode.ON, tier="s3k1d4"), (1, 2, 2)),
        (RankCommand(mode=Mode.ON, tier="s1k1d2"), (1, 1)),
    ):
        rank.command(encode(command, TIERS))
        assert tuple(step() for _ in taken) == taken


def test_a_change_of_tier_is_published_before_the_result_of_the_batch_before(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    tiers = adapter_tiers.controller()
    assert tiers is not None
    rank.command(encode(RankCommand(mode=Mode.OFF), TIERS))
    _steps(tiers, 2)
    assert _live(tmp_path).tier == "s3k1d4"
    rank.launched(_batch(DECODE, 2), SimpleNamespace())
    assert _live(tmp_path).tier == "off"


def test_graph_sizes_above_a_tiers_limit_are_left_out_but_the_one_that_holds_it() -> None:
    sizes = [1, 2, 4, 8, 16, 24]
    assert adapter_room.pruned(sizes, None) == sizes
    assert adapter_room.pruned(sizes, 8) == [1, 2, 4, 8]
    assert adapter_room.pruned(sizes, 9) == [1, 2, 4, 8, 16]
    assert adapter_room.pruned(sizes, 100) == sizes


def test_a_reader_that_knows_the_newest_switch_is_given_no_journal(
    scheduler: Scheduler, tmp_path: Path
) -> None:
    rank = _adaptive(scheduler, tmp_path)
    for mode, tier in ((Mode.OFF, None), (Mode.ON, "s1k1d2")):
        rank.command(encode(RankCommand(mode=mode, tier=tier), TIERS))
        rank.idle()
    observer = Observer(tmp_path)
    for since, entries in ((0, 2), (1, 2), (2, 0), (10**12, 0)):
        (seen,) = observer.ranks(since)
        # Those above ``since`` are picked where the answer is put together.
        assert len(seen.journal) == entries


def test_a_move_up_is_told_with_the_first_batch_that_runs_it(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_rank, "PUBLISH_NS", 10**18)  # nothing by the clock alone
    rank = _adaptive(scheduler, tmp_path)
    tiers = adapter_tiers.controller()
    assert tiers is not None
    scheduler.running_batch.reqs = [None, None]
    batch = _batch(DECODE, 2)

    def step() -> str:
        """One decode batch; returns the tier that the rank then tells."""
        rank.launching(batch)
        tiers.activate_step_by_batch(2)
        result = SimpleNamespace(num_correct_drafts_per_req_cpu=[0, 0], can_run_cuda_graph=True)
        rank.launched(batch, result)
        told = _live(tmp_path).tier
        rank.finished(batch, result)
        return told

    rank.command(encode(RankCommand(mode=Mode.OFF), TIERS))
    assert step() == "off"
    rank.command(encode(RankCommand(mode=Mode.ON, tier="s3k1d4", epoch=0, generation=1), TIERS))
    # The bridge, then the tier; the change was decided with the bridge.
    assert [step(), step()] == ["off", "s3k1d4"]


def test_requests_are_told_as_running_when_their_prefill_is_over_not_with_the_next_regular_write(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_rank, "PUBLISH_NS", 10**18)
    rank = _adaptive(scheduler, tmp_path)
    batch = _batch(EXTEND, 3)
    rank.launching(batch)
    assert (_live(tmp_path).prefilling, _live(tmp_path).running) == (3, 0)
    rank.finished(batch, SimpleNamespace())
    assert (_live(tmp_path).prefilling, _live(tmp_path).running) == (0, 3)


@pytest.mark.parametrize("copied", ["hierarchical_cache", "lmcache", "flexkv", None])
def test_nothing_is_owed_where_a_cache_copies_the_kv_of_a_request_that_ends(
    copied: str | None,
) -> None:
    arguments = SimpleNamespace(**{} if copied is None else {f"enable_{copied}": True})
    assert adapter_off.copied_at_once(arguments) == (copied is not None)


def test_rows_wait_as_long_as_the_next_round_of_the_same_requests_has_room() -> None:
    owed = adapter_owed.Owed()
    assert [owed.waits(requests) for requests in (1, 256, 257)] == [True, True, False]
    assert not adapter_owed.Owed(rounds=1).waits(1)
    assert owed.settle() is None
    assert not owed.others(["a"])  # nothing is owed to anybody
