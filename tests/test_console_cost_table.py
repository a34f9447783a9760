"""The cost table: the present load is marked, the best tier is told, missing cells are "-"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.board import Board, seeded, with_status
from console.cost_table import lines, now_bucket, table
from console.lookups import Looked, Lookups
from console.scene import Scene
from console.spans import plain, width
from controlplane.messages import Costs
from engine_patch.costs import ContextBand
from tests.console_fleet_story import costs
from tests.console_story import DEEP, ENGINE, NARROW, OFF, START_MS, status, story


def scene(told: Costs | None = None, trouble: str = "") -> Scene:
    """The story's end, with a table."""
    board = seeded(with_status(Board(ENGINE), status()), story(), ())
    looked = Lookups(costs=Looked(told, START_MS + 119_000 if told else None, trouble))
    return Scene(board, START_MS + 120_000, looked=looked)


def text(told: Scene, size: int = 80, height: int = 14) -> str:
    """The lines as text."""
    return "\n".join(plain(line) for line in lines(told, size, height))


def test_the_present_load_and_tier_are_marked() -> None:
    told = scene(costs())
    assert now_bucket(told) == 32
    marked = [row for row in text(told).splitlines() if row.startswith("▸")]
    assert len(marked) == 1
    assert "[10.37" in marked[0]
    assert "now: 25 req" in text(told)
    assert "read 1.0s ago" in text(told)


def test_the_best_tier_is_told_only_where_all_are_known() -> None:
    found = table(scene(costs()), costs(), None)
    assert found.tiers == (DEEP, NARROW, OFF)
    assert found.best(8) == DEEP
    fewer = costs()
    fewer = fewer.model_copy(update={"costs": tuple(c for c in fewer.costs if c.tier != OFF)})
    assert table(scene(fewer), fewer, None).best(8) == DEEP
    cells = tuple(c for c in costs().costs if (c.tier, c.bucket) != (OFF, 8))
    holed = costs().model_copy(update={"costs": cells})
    assert table(scene(holed), holed, None).best(8) is None
    assert "-" in text(scene(holed))


def test_interpolated_cells_are_marked() -> None:
    row = next(r for r in text(scene(costs()), height=20).splitlines() if r.startswith("       96"))
    assert "~" in row


def test_another_band_without_cells_says_so() -> None:
    found = table(scene(costs()), costs(), ContextBand.MORE)
    assert found.tiers == ()
    nearest = table(scene(costs()), costs(), None)
    assert nearest.band is ContextBand.UP_TO_16K


@pytest.mark.parametrize(
    ("told", "trouble", "words"),
    [
        (None, "", "reading the step-cost table"),
        (None, "timed out", "could not be read: timed out"),
        (Costs(setup_key="x"), "", "not measured for this setup: run specdeck bench"),
    ],
)
def test_a_missing_table_says_why(told: Costs | None, trouble: str, words: str) -> None:
    assert words in text(scene(told, trouble))


@pytest.mark.parametrize("size", [60, 80, 120])
def test_lines_fill_their_width(size: int) -> None:
    assert {width(line) for line in lines(scene(costs()), size, 9)} == {size}


def test_without_a_load_nothing_is_marked() -> None:
    told = replace(scene(costs()), board=with_status(Board(ENGINE), status()))
    assert "no load is known now" in text(told)
    assert not [row for row in text(told).splitlines() if row.startswith("▸")]
