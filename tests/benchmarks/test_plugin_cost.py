"""What the plugin takes out of a scheduler's loop, in microseconds per decode batch.

The batches, results and pools are stand-ins with the attributes the hooks read: what is measured is
our own work, on any machine, without SGLang.  Run: ``python -m pytest -m benchmark -s``.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_patch import adapter_rank, shm
from engine_patch.chooser import Chooser
from engine_patch.contract import Identity
from engine_patch.contract_words import Mode
from engine_patch.published import RankFacts
from engine_patch.tier import Thresholds

pytestmark = pytest.mark.benchmark

STEPS = 2000
DECODE = SimpleNamespace(is_decode=lambda: True, is_extend=lambda: False)


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> adapter_rank.Rank:
    """A rank in mode auto with an accept-length floor: the most work a batch can mean."""
    monkeypatch.setattr(adapter_rank, "reserve_per_request", lambda: 8)
    pool = SimpleNamespace(full_num_used=5000, full_available_size=9000, full_evictable_size=2000)
    scheduler = SimpleNamespace(
        running_batch=SimpleNamespace(reqs=[]),
        waiting_queue=[],
        grammar_manager=SimpleNamespace(grammar_queue=[]),
        chunked_req=None,
        pool_stats_observer=SimpleNamespace(get_pool_stats=lambda: pool),
    )
    facts = RankFacts(
        pid=1, identity=Identity(model="m", algorithm="EAGLE3"), launch_tier="s3k1d4", graphs=True
    )
    rank = adapter_rank.Rank(scheduler, shm.RankFile.create(tmp_path, 0, 0, 0), facts, None)
    chooser = rank.chooser = Chooser(("off", "s1k1d2", "s3k1d4"), "s3k1d4")
    chooser.mode = Mode.AUTO
    chooser.thresholds = Thresholds(tiers=("s3k1d4",), min_accept_length={"s3k1d4": 1.1})
    return rank


def _batch(size: int) -> tuple[Any, Any]:
    accepted = [random.Random(i).randint(0, 3) for i in range(size)]
    requests = [SimpleNamespace(origin_input_ids=[0] * 9, output_ids=[0] * 9) for _ in accepted]
    batch = SimpleNamespace(forward_mode=DECODE, reqs=requests)
    result = SimpleNamespace(num_correct_drafts_per_req_cpu=accepted, can_run_cuda_graph=True)
    return batch, result


def _round(rank: adapter_rank.Rank, batch: Any, result: Any) -> None:
    rank.launching(batch)
    assert rank.chooser is not None
    rank.chooser.next_tier(len(batch.reqs))
    rank.launched(batch, result)
    rank.finished(batch, result)


@pytest.mark.parametrize("size", [1, 16, 64, 256])
def test_work_per_decode_batch(rank: adapter_rank.Rank, size: int) -> None:
    batch, result = _batch(size)
    for published, interval in (("never", 10**15), ("each batch", 0)):
        adapter_rank.PUBLISH_NS = interval
        best = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            for _ in range(STEPS):
                _round(rank, batch, result)
            best = min(best, (time.perf_counter() - begin) / STEPS * 1e6)
        print(f"batch {size:3}: {best:6.1f} us per batch, numbers published {published}")
    adapter_rank.PUBLISH_NS = 50_000_000
