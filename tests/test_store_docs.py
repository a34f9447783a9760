"""The store's page leaves nothing out."""

from __future__ import annotations

import inspect
from pathlib import Path

from sqlmodel import SQLModel

from store import errors, pruning, tables, writer
from store.db import Record

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "store.md").read_text()

assert tables  # importing it declares the tables


def test_every_error_is_explained() -> None:
    kinds = [name for name, kind in vars(errors).items() if inspect.isclass(kind)]
    assert len(kinds) > 5
    assert [name for name in kinds if f"`{name}`" not in PAGE] == []


def test_every_table_is_explained() -> None:
    assert [name for name in SQLModel.metadata.tables if f"`{name}`" not in PAGE] == []


def test_every_kind_of_record_is_explained() -> None:
    assert [kind.__name__ for kind in Record.__args__ if f"`{kind.__name__}`" not in PAGE] == []


def test_the_limits_it_names_are_the_real_ones() -> None:
    for number in (writer.QUEUE_LIMIT, writer.TICK_LIMIT, writer.GROUP_LIMIT, pruning.STEP_ROWS):
        assert f"{number:,}" in PAGE
    assert f"the last {writer.SYNC_EVERY_S:g} s" in PAGE
