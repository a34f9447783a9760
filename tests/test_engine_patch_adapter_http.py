"""The HTTP process's own rules; its way through a real server is tested in ``tests/engine``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from engine_patch import adapter_http
from engine_patch.contract import Identity, KvSlots
from engine_patch.contract_words import Mode
from engine_patch.published import Rank, RankFacts, RankLive
from engine_patch.wire import RankCommand

COMMAND = RankCommand(mode=Mode.ON, tier="s1k1d2")


def _rank(dp_rank: int, **live: object) -> Rank:
    kv = KvSlots(capacity=1, committed=0, evictable=0, reserve=0)
    return Rank(
        facts=RankFacts(pid=1, dp_rank=dp_rank, identity=Identity(model="m", dp_size=2)),
        live=RankLive.model_validate({"kv": kv} | live),
    )


def test_a_refused_replica_answers_in_its_ranks_words() -> None:
    ranks = [_rank(0, wanted="s1k1d2"), _rank(1, refused="tiers differ")]
    first, second = adapter_http.answers([True, False], ranks, COMMAND)
    assert (first.dp_rank, first.applied, first.tier, first.message) == (0, True, "s1k1d2", "")
    assert (second.dp_rank, second.applied, second.tier) == (1, False, None)
    assert second.message == "tiers differ"


def test_a_replica_that_cannot_be_seen_answers_yes_or_no_all_the_same() -> None:
    first, second = adapter_http.answers([True, False], [], COMMAND)
    assert (first.applied, first.tier) == (True, "s1k1d2")
    assert second.message == "the scheduler refused it"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that can be imported and has not been."""
    name = "imported_later"
    (tmp_path / f"{name}.py").write_text("ready = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_something_can_wait_for_an_import_and_leaves_no_trace(module: str) -> None:
    before, seen = list(sys.meta_path), list[ModuleType]()
    adapter_http.when_imported(module, seen.append)
    assert seen == []
    loaded = importlib.import_module(module)
    assert seen == [loaded]
    assert loaded.ready
    assert sys.meta_path == before
    del sys.modules[module]
    importlib.import_module(module)
    assert len(seen) == 1


def test_what_is_imported_already_is_not_waited_for(module: str) -> None:
    loaded, seen = importlib.import_module(module), list[ModuleType]()
    adapter_http.when_imported(module, seen.append)
    assert seen == [loaded]
    del sys.modules[module]
