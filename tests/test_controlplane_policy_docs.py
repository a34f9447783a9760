"""``docs/policies.md`` names every reason code and every alarm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from store.records import Reason

ROOT = Path(__file__).parents[1]
DOCS = (ROOT / "docs" / "policies.md").read_text()
SOURCES = ("notices", "obedience", "answers", "controller")


def alarm_codes() -> set[str]:
    """Codes that the controller raises, read from its source."""
    found: set[str] = set()
    for name in SOURCES:
        text = (ROOT / "controlplane" / f"{name}.py").read_text()
        found |= set(re.findall(r'\.up\(\s*"(\w+)"', text))
        found |= set(re.findall(r'failed\(\s*obedience,\s*"(\w+)"', text))
        found |= set(re.findall(r'code, text = "(\w+)"', text))
    return found


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_explained(reason: Reason) -> None:
    assert f"`{reason.value}`" in DOCS


def test_every_alarm_is_listed_with_its_end() -> None:
    codes = alarm_codes()
    assert len(codes) >= 8
    assert {code for code in codes if f"`{code}`" not in DOCS} == set()
