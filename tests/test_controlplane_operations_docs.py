"""``docs/operations.md`` names every alarm; what lies in ``docs/deploy`` fits the program."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from pathlib import Path

import pytest

from controlplane.settings import Settings
from controlplane.sources import ALARM as SOURCE_FAILED
from tests.test_controlplane_policy_docs import alarm_codes

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs" / "deploy"
METRICS = (ROOT / "controlplane" / "metrics_page.py").read_text()


def known_metrics() -> set[str]:
    """Names as Prometheus shows them: a counter ends in ``_total``."""
    names = set(re.findall(r'GaugeMetricFamily\(\s*"(specdeck_\w+)"', METRICS))
    counters = re.findall(r'CounterMetricFamily\(\s*"(specdeck_\w+)"', METRICS)
    return names | {f"{name}_total" for name in counters}


def test_every_alarm_has_its_line() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    loop = set(re.findall(r'_alarm\("(\w+)"', (ROOT / "controlplane" / "runner.py").read_text()))
    storage = (ROOT / "controlplane" / "maintenance.py").read_text()
    kept = set(re.findall(r'_raise\(\s*"(\w+)"', storage))
    assert loop
    assert kept
    codes = alarm_codes() | loop | kept | {SOURCE_FAILED}
    assert {code for code in codes if f"| `{code}` |" not in text} == set()


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yaml"])
def test_dashboards_and_rules_ask_for_metrics_that_exist(name: str) -> None:
    used = set(re.findall(r"specdeck_\w+", (DEPLOY / name).read_text()))
    assert len(used) >= 2
    assert used - known_metrics() == set()


def test_the_dashboard_is_json_with_a_query_in_every_panel() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    assert len(board["panels"]) >= 10
    assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])


def test_the_manifests_settings_are_valid_but_for_the_secrets() -> None:
    text = (DEPLOY / "kubernetes.yaml").read_text()
    block = text.split("specdeck.toml: |\n")[1].split("---")[0]
    values = tomllib.loads("\n".join(line[4:] for line in block.splitlines()))
    settings = Settings.model_validate(values)
    assert settings.engines[0].group == "prod"
    assert "replicas: 1" in text


def test_the_unit_starts_the_server() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "specdeck.service")
    assert unit["Service"]["ExecStart"].split()[1:] == [
        "serve",
        "--config",
        "/etc/specdeck/specdeck.toml",
    ]
