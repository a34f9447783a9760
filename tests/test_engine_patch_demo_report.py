"""What a headless demo run says about itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine_patch.demo_plan import Phase, Plan
from engine_patch.demo_report import SCHEMA, Measured, ReportError, report, text

PLAN = Plan(
    phases=(
        Phase(concurrency=4, requests=((128, 500),) * 8),
        Phase(concurrency=256, requests=((128, 400),) * 256),
    ),
    off_s=(5.0, 5.0),
    on_s=(4.0, 8.0),
)
BEGAN_MS = 1_800_000_000_000


def _phase(index: int, start_s: float, end_s: float) -> dict[str, Any]:
    return {
        "index": index,
        "start_s": start_s,
        "end_s": end_s,
        "complete": True,
        "failed": 0,
        "output_tokens": PLAN.phases[index].tokens,
    }


def _measured(**changes: Any) -> Measured:
    values: dict[str, Any] = {
        "load": {
            "started_utc_ms": BEGAN_MS,
            "phases": [_phase(0, 0.5, 4.6), _phase(1, 4.6, 9.7)],
            "errors": {},
            "stopped_by": "",
            "own": {"bottleneck": False},
        },
        "decisions": [
            _decision(2, 4.9, "s3k1d4", "off", "confirmed"),
            _decision(1, 0.6, "off", "s3k1d4", "timed_out"),
            _decision(3, 12.0, "off", "s3k1d4", "confirmed"),
            _decision(0, 0.1, None, "s3k1d4", "confirmed"),
        ],
        "gap_times": [BEGAN_MS + 100, BEGAN_MS + 3000, BEGAN_MS + 20_000],
        "simulation": {"table": "h200-8b-fa3", "lag": 0.001, "valid": True},
        "startup_s": 1.2,
        "seed": 7,
    }
    return Measured(**(values | changes))


def _decision(
    number: int, after_s: float, tier: str | None, to: str, outcome: str
) -> dict[str, Any]:
    return {
        "id": number,
        "at_utc_ms": BEGAN_MS + round(after_s * 1000),
        "from_tier": tier,
        "to_tier": to,
        "reason": "load_up",
        "text": "concurrency 200 >= 113",
        "outcome": outcome,
        "latency_ms": 120.0 if outcome == "confirmed" else None,
    }


def test_rates_are_tokens_over_the_seconds_of_each_mode() -> None:
    document = report(PLAN, _measured())
    assert document["schema"] == SCHEMA
    assert document["simulated"] is True
    assert document["table"] == "h200-8b-fa3"
    assert document["phases"][0] == {
        "concurrency": 4,
        "tokens": 4000,
        "dynamic_tok_s": pytest.approx(4000 / 4.1, abs=0.1),
        "on_tok_s": 1000.0,
        "off_tok_s": 800.0,
    }
    assert document["overall"] == {
        "tokens": 106_400,
        "dynamic_tok_s": pytest.approx(106_400 / 9.2, abs=0.1),
        "on_tok_s": pytest.approx(106_400 / 12, abs=0.1),
        "off_tok_s": 10_640.0,
    }
    assert document["seconds"] == pytest.approx(9.2)


def test_regret_is_the_share_lost_against_the_better_fixed_mode_of_that_phase() -> None:
    quiet, busy = report(PLAN, _measured())["regret"]
    assert quiet == pytest.approx(1 - 4.0 / 4.1, abs=1e-4)
    assert busy == pytest.approx(1 - 5.0 / 5.1, abs=1e-4)


def test_switches_and_gaps_count_while_traffic_ran_and_times_start_with_it() -> None:
    document = report(PLAN, _measured())
    assert document["gaps"] == 1
    assert [(s["at_s"], s["to"], s["confirmed"]) for s in document["switches"]] == [
        (0.1, "s3k1d4", False),
        (4.4, "off", True),
    ]


def test_a_run_that_cannot_be_trusted_says_why() -> None:
    assert report(PLAN, _measured())["valid"] is True
    late = _measured(simulation={"table": "t", "lag": 0.031, "valid": False})
    load = copy.deepcopy(_measured().load)
    load["phases"][1]["failed"] = 3
    load["errors"] = {"HTTP 500": 3}
    busy = copy.deepcopy(_measured().load)
    busy["own"]["bottleneck"] = True
    short = copy.deepcopy(_measured().load)
    short["phases"][0]["output_tokens"] -= 1
    for measured, words in (
        (late, "fell behind the wall clock by 3.1 %"),
        (_measured(load=load), "3 requests failed: HTTP 500"),
        (_measured(load=busy), "load generator was the bottleneck"),
        (_measured(load=short), "phases 0 did not yield the tokens"),
    ):
        document = report(PLAN, measured)
        assert document["valid"] is False
        (reason,) = document["invalid_because"]
        assert words in reason
        assert f"not valid: {reason}" in text(document)


def test_traffic_that_did_not_finish_is_no_result() -> None:
    load = copy.deepcopy(_measured().load)
    load["phases"][1]["complete"] = False
    load["stopped_by"] = "gave_up"
    with pytest.raises(ReportError, match="finished 1 of 2 phases, stopped by gave_up"):
        report(PLAN, _measured(load=load))


def test_the_text_names_the_table_the_units_and_what_was_not_confirmed() -> None:
    shown = text(report(PLAN, _measured()))
    assert shown.startswith("simulated times: table h200-8b-fa3\n")
    assert "tok/s" in shown
    assert "off -> s3k1d4  NOT CONFIRMED" in shown
    assert "s3k1d4 -> off  confirmed in 120 ms" in shown
