"""Odd and hostile results: each is read, or refused in a sentence; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.bench_cli import run

ODD = st.sampled_from(
    ["", "0", "-0", "inf", "-inf", "nan", "1e400", "5e-324", "9" * 30, "9" * 5000, "1_0", "٣",
     "0x10", "+3", " 7 ", "true", "\u2212" + "1", "\x1b[31m", "näh", "=1+1", "\ufeff1"]
)  # fmt: skip
TIERS = st.sampled_from(["plain", "off", "s3k1d4", "s2k4d16", "S3K1D4", f"s{'9' * 5000}k1d2", ""])
OTHERS = ("accept_length", "cap", "repeat", "backend", "gpu", "label", "seconds", "queued", "x")
JSON = st.sampled_from(
    [None, True, 0, -1, 1.5, 8, 64, 10**25, 10**400, float("nan"), float("inf"), "", "x", [], {},
     [1], {"avg": 2}, "\ud800"]
)  # fmt: skip
quick = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def csvs(draw: st.DrawFn) -> bytes:
    """A table whose cells are right at one time and odd at another."""
    others = draw(st.lists(st.sampled_from(OTHERS), max_size=3))
    header = ["tier", "concurrency", "tok_s", *others]
    rows = [
        [draw(TIERS), draw(st.sampled_from(["1", "16"]) | ODD), draw(st.just("9.5") | ODD)]
        + [draw(st.just("2") | ODD) for _ in others]
        for _ in range(draw(st.integers(0, 4)))
    ]
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = end.join(",".join(row) for row in [header, *rows])
    return text.encode(
        draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])), "replace"
    )


@st.composite
def others(draw: st.DrawFn) -> bytes:
    """What another tool might have written, with something odd in every place."""
    figures: dict[str, Any] = {"output_throughput": draw(st.just(50.0) | JSON)}
    for name in ("max_concurrency", "accept_length", "request_rate", "completed",
                 "total_output_tokens", "median_ttft_ms", "server_info"):  # fmt: skip
        figures[name] = draw(JSON)
    load = {"concurrency": draw(JSON), "request_rate": draw(JSON)}
    metric = {name: {"successful": {"mean": draw(JSON)}} for name in (
        "output_tokens_per_second", "request_concurrency", "prompt_token_count")}  # fmt: skip
    rows = [
        figures,
        {"output_token_throughput": {"avg": draw(JSON)}, "request_count": draw(JSON),
         "input_sequence_length": {"avg": draw(JSON)}, "input_config": {"loadgen": load}},
        {"benchmarks": [draw(JSON), {"config": {"strategy": draw(JSON)}, "metrics": metric}]},
        {"name": draw(JSON), "conc": draw(JSON), "tok_s": draw(JSON), "accept_len": draw(JSON)},
        {"schema": "specdeck.bench/1", "points": [
            {"tier": "off", "concurrency": draw(JSON), "tok_s": draw(JSON), "label": draw(JSON)},
            {"tier": "s3k1d4", "concurrency": 8, "tok_s": draw(st.just(5.0) | JSON)}]},
    ]  # fmt: skip
    return json.dumps(draw(st.sampled_from(rows))).encode()


def answered(capsys: pytest.CaptureFixture[str], *argv: str) -> None:
    code = run(list(argv))
    out, err = capsys.readouterr()
    assert code in (0, 2, 4)
    assert "Traceback" not in err
    assert err.startswith("specdeck bench: ") or not code
    for text in (out, err):
        assert "\x1b" not in text
        text.encode()


@given(csvs())
@quick
def test_any_table_is_analysed_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(data)
    answered(capsys, "analyze", str(path))
    answered(capsys, "export", str(path), "--to", "thresholds")


@given(others())
@quick
def test_any_json_is_imported_analysed_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(data)
    given = ["--speculative", str(path), "--tier", "s3k1d4", "--concurrency", "4"]
    answered(capsys, "analyze", str(path))
    answered(capsys, "import", *given, "-o", str(tmp_path / "out.json"))


@pytest.mark.parametrize("number", ["9" * 400, "1e12", "0.0000000001"])
def test_numbers_beyond_anything_measured_are_refused_with_their_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(f"tier,concurrency,tok_s\nplain,1,5\noff,1,{number}9\n")
    assert run(["analyze", str(path)]) == 2
    assert "odd.csv:3:3: tok_s: Input should be" in capsys.readouterr().err


def test_a_label_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("tier,concurrency,tok_s,label\nplain,1,5,\ns3k1d4,1,9,\x1b]0;x\x07\n")
    assert run(["analyze", str(path)]) == 0
    out = capsys.readouterr().out
    assert "s3k1d4 \ufffd]0;x\ufffd" in out
