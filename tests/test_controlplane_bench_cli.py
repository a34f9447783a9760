"""``specdeck bench`` on files: what it prints, writes and answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.bench_cli import run
from controlplane.bench_read import read
from controlplane.bench_text import wrapped
from store.db import Store

ROOT = Path(__file__).parents[1]
KIT = str(ROOT / "tests/samples/h200-0.5.17/bench.jsonl")
FA3 = [KIT, "--backend", "fa3", "--label", "acc2.0"]
CSV = """tier,num_steps,topk,num_draft_tokens,concurrency,tok_s,accept_length,cap,repeat
plain,,,,1,93,,,1
s2k4d16,2,4,16,1,96,,,1
plain,,,,250,773,,,1
s2k4d16,2,4,16,250,354,,,1
"""


@pytest.fixture
def origin(tmp_path: Path) -> str:
    path = tmp_path / "origin.csv"
    path.write_text(CSV)
    return str(path)


def test_analyze_prints_one_json_object_with_the_documented_keys(
    origin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", origin, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert {"crossover", "points", "below_floor", "not_comparable", "verdict"} <= found.keys()
    assert found["crossover"].keys() == {"low", "high", "reason"}
    assert (found["crossover"]["low"], found["crossover"]["high"]) == (None, 250)
    assert [point["interval"] for point in found["points"]] == [None, None]
    assert all(point["resolution"].startswith("not resolved") for point in found["points"])


def test_analyze_prints_a_verdict_first_and_missing_values_as_a_dash(
    origin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", origin]) == 0
    out = capsys.readouterr().out
    assert out.startswith("s2k4d16 is not shown to pay at any measured load")
    assert "- to 250 requests" in out
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["250"])
    assert row[-3:] == ["-", "-", "-"]


def test_lines_longer_than_a_terminal_go_on_below_where_their_text_began() -> None:
    shown = wrapped("a verdict of some words\n  against    one plain server of two\n\n  1  2\n", 20)
    assert shown.splitlines() == [
        "a verdict of some",
        "words",
        "  against    one",
        "             plain",
        "             server",
        "             of two",
        "",
        "  1  2",
    ]


@given(st.text(st.sampled_from("ab \n"), max_size=200), st.integers(20, 90))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    assert wrapped(text, width).split() == text.split()


def test_the_kits_rows_can_be_narrowed_to_one_series(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", *FA3, "--tier", "s3k1d4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["crossover"]["low"] == 64
    assert found["crossover"]["high"] in (128, 256)


@pytest.mark.parametrize("backend", ["fa3", "triton"])
def test_the_reports_in_the_docs_are_what_the_analysis_says_today(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", KIT, "--backend", backend, "--label", "acc2.0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    kept = ROOT / f"docs/reports/h200-{backend}-acc2.0.json"
    assert found["verdict"] == json.loads(kept.read_text())["verdict"]
    assert found["crossover"] == json.loads(kept.read_text())["crossover"]
    assert found["verdict"].replace("'", "&#x27;") in kept.with_suffix(".html").read_text()


def test_a_tolerance_of_ones_own_replaces_the_documented_noise(
    origin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", origin, "--json", "--tolerance", "0.01"]) == 0
    assert json.loads(capsys.readouterr().out)["crossover"]["low"] == 1


@pytest.mark.parametrize(
    ("text", "words"), [("tier\n", "1:1: no column"), (CSV + "plain,,,,1,x,,,2\n", "6:6: tok_s")]
)
def test_a_bad_file_is_refused_with_its_place_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    for command in (["analyze"], ["export", "--to", "vllm"], ["report", "-o", str(path)]):
        assert run([command[0], str(path), *command[1:]]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert f"bad.csv:{words}" in err


def test_an_export_goes_to_stdout_alone_and_its_warnings_do_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["export", *FA3, "--to", "vllm"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["num_speculative_tokens"] == 3
    assert "s2k4d16 left out" in err
    assert "expected:" in err


def test_every_target_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("sglang", "vllm", "trtllm", "thresholds", "csv"):
        out = tmp_path / target
        assert run(["export", *FA3, "--to", target, "--output", str(out)]) == 0
        assert out.read_text().strip()
    capsys.readouterr()
    assert len(read(tmp_path / "csv").points) > 10


def test_what_cannot_be_proposed_is_refused_with_code_4(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["export", KIT, "--to", "vllm"]) == 4
    assert "choose one with --backend, --tier or --label" in capsys.readouterr().err


def test_a_report_is_written(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    assert run(["report", *FA3, "-o", str(out), "--title", "Ours"]) == 0
    assert "<title>Ours</title>" in out.read_text()


def test_a_report_without_its_extra_names_the_pip_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygal", None)
    assert run(["report", *FA3, "-o", str(tmp_path / "r.html")]) == 7
    assert "pip install 'specdeck[report]'" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", *FA3, "--to", "csv", "-o", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.constructed
def test_imported_results_are_analysed_like_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = ROOT / "tests/samples/bench-constructed"
    out = tmp_path / "both.json"
    plain, chain = str(samples / "sglang-plain.jsonl"), str(samples / "sglang-chain.jsonl")
    assert run(["import", "--plain", plain, "--speculative", chain, "-o", str(out)]) == 0
    assert "no steady window" in capsys.readouterr().err
    assert run(["analyze", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["crossover"]["low"] == 16
    assert run(["import"]) == 2
    assert run(["import", "--speculative", plain, "--tier", "fast"]) == 2


def test_a_table_is_kept_for_its_setup_and_refused_for_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(tmp_path / "s.db")
    Store.open(database).close()
    key = "SGLang-0.5.17_m_H200x1_fa3_tp1-dp1_0123456789ab"
    assert run(["export", *FA3, "--to", "csv", "-o", str(tmp_path / "a.csv")]) == 0
    keyed = tmp_path / "a.json"
    keyed.write_text(
        read(tmp_path / "a.csv")
        .model_copy(update={"setup_key": key})
        .model_dump_json(by_alias=True)
    )
    assert run(["table", str(keyed), "--database", database, "--save"]) == 0
    capsys.readouterr()
    assert run(["table", "--database", database, "--setup-key", key]) == 0
    shown = capsys.readouterr().out
    assert "benchmark a.json 100 %" in shown
    other = key.replace("fa3", "triton")
    assert run(["table", str(keyed), "--database", database, "--setup-key", other]) == 4
    assert "attention backend: fa3, here triton" in capsys.readouterr().err
    assert run(["table", "--database", database, "--setup-key", other]) == 4
    assert run(["table", "--database", str(tmp_path / "none.db"), "--setup-key", key]) == 5
    assert run(["table"]) == 2
    assert run(["table", str(tmp_path / "a.csv")]) == 2
    assert run(["table", str(keyed), "--save"]) == 2
