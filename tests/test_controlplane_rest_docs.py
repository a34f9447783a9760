"""``docs/rest-api.md`` names every request, every problem code and every metric there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.api import create_app
from controlplane.service import Service
from controlplane.settings import Settings
from store.db import Store
from tests.test_controlplane_operations_docs import known_metrics

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "rest-api.md").read_text(encoding="utf-8")
NAMES = {"engine_id": "id", "session_id": "id", "benchmark_id": "benchmark"}


@pytest.fixture
def operations(tmp_path: Path) -> list[tuple[str, str]]:
    """(method, path) of every request, as the control plane describes itself."""
    settings = Settings(database=str(tmp_path / "d.sqlite3"))
    with Store.open(settings.database_location) as store:
        described = create_app(Service(settings, store), settings).openapi()["paths"]
    return [(method.upper(), path) for path, methods in described.items() for method in methods]


def test_every_request_has_its_row(operations: list[tuple[str, str]]) -> None:
    assert len(operations) > 40
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    missing = []
    for method, path in operations:
        written = re.sub(r"{(\w+)}", lambda m: f"{{{NAMES.get(m[1], m[1])}}}", path)
        wanted = re.compile(re.escape(written) + r"(?=[`?,])")
        if not any(method in row and wanted.search(row) for row in rows):
            missing.append(f"{method} {written}")
    assert missing == []


def test_every_problem_code_has_its_row() -> None:
    source = "\n".join(one.read_text() for one in (ROOT / "controlplane").glob("*.py"))
    codes = set(re.findall(r'ProblemError\(\s*\d+,\s*"(\w+)"', source))
    codes |= set(re.findall(r'answer\(\s*\d+,\s*"(\w+)"', source))
    assert len(codes) > 20
    table = PAGE.split("## Errors")[1].split("\n## ")[0]
    assert sorted(code for code in codes if f"`{code}`" not in table) == []


def test_every_metric_is_named() -> None:
    assert sorted(name for name in known_metrics() if f"`{name}" not in PAGE) == []
