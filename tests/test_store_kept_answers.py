"""Answers under idempotency keys: kept over a restart, replaced, dropped, and let go by age."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from store import kept_answers
from store.db import Store
from store.idempotency import KeptAnswer, KeptState
from tests.store_place import Place

DAY = kept_answers.KEEP_MS


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with Store.open(place.location) as opened:
        yield opened


def made(key: str = "k", at_utc_ms: int = 1_000, **more: object) -> KeptAnswer:
    given = {"caller": "ops", "key": key, "request": "digest", "at_utc_ms": at_utc_ms}
    return KeptAnswer.model_validate(given | more)


def put(store: Store, *kept: KeptAnswer) -> None:
    store.write(kept).result(timeout=10)


def test_an_answer_outlives_the_store_that_was_closed(place: Place) -> None:
    answered = made(state=KeptState.ANSWERED, status=200, headers=(("ETag", '"a"'),), text="{}")
    with Store.open(place.location) as store:
        put(store, made())
        put(store, answered)
    with Store.open(place.location) as store:
        found = store.kept_answer("ops", "k")
        assert found is not None
        assert found == answered.model_copy(update={"id": found.id})


def test_a_key_belongs_to_its_caller(store: Store) -> None:
    put(store, made())
    assert store.kept_answer("other", "k") is None
    assert store.kept_answer("ops", "other") is None


def test_a_dropped_key_is_free_again(store: Store) -> None:
    put(store, made())
    put(store, made(state=KeptState.DROPPED), made("never there", state=KeptState.DROPPED))
    assert store.kept_answer("ops", "k") is None


def test_old_answers_are_let_go_when_a_new_one_comes(store: Store) -> None:
    put(store, made("old", 1_000), made("young", 2_000))
    put(store, made("new", 1_001 + DAY))
    assert store.kept_answer("ops", "old") is None
    assert store.kept_answer("ops", "young") is not None


def test_no_more_than_the_newest_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "KEYS", 3)
    for number in range(5):
        put(store, made(f"k{number}"))
    kept = [number for number in range(5) if store.kept_answer("ops", f"k{number}") is not None]
    assert kept == [2, 3, 4]
