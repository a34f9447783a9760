"""CSV and JSON lines: units, missing values, hostile text."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.export import Form, as_csv, at, written
from store.records import Override, Tick
from tests.console_fleet_story import audit, fleet
from tests.console_story import DEEP, OFF, START_MS, decision, gap, override, sample, tick


def read(text: str) -> list[dict[str, str]]:
    """A CSV as a spreadsheet reads it."""
    return list(csv.DictReader(io.StringIO(text)))


def test_ticks_have_units_in_their_names_and_gaps_are_empty() -> None:
    told = [tick(sample(1)), tick(gap(2, "refused"), None, desired=DEEP)]
    rows = read(written(told, Form.CSV))
    assert rows[0]["at_utc"] == at(START_MS + 1000)
    assert rows[0]["decode_tok_s"]
    assert rows[1]["gap"] == "refused"
    assert rows[1]["concurrency_req"] == ""
    assert rows[1]["confirmed"] == ""


def test_json_lines_are_the_records_themselves() -> None:
    told = [tick(sample(1)), tick(gap(2), None, desired=DEEP)]
    lines = written(told, Form.JSON_LINES).splitlines()
    assert [Tick.model_validate_json(line) for line in lines] == told


def test_decisions_fleet_and_audit_have_columns_too() -> None:
    assert read(written([decision(1, DEEP, OFF)], Form.CSV))[0]["to"] == OFF
    assert len(read(written(fleet().rows, Form.CSV))) == 7
    assert read(written(audit(), Form.CSV))[0]["action"] == "override.set"
    assert written([], Form.CSV) == ""
    with pytest.raises(TypeError, match="Override"):
        written([override()], Form.CSV)
    assert Override.model_validate(json.loads(written([override()], Form.JSON_LINES)))


@given(st.text(max_size=60))
def test_no_text_breaks_a_row_acts_on_a_terminal_or_computes(text: str) -> None:
    out = as_csv([{"a": text, "b": 1}])
    rows = read(out)
    assert len(rows) == 1
    assert rows[0]["b"] == "1"
    assert rows[0]["a"][:1] not in ("=", "+", "-", "@")
    assert all(char.isprintable() or char == "\n" for char in out)
