"""The HTML report: one file that needs nothing from outside, and hides nothing."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from controlplane.bench_analysis import analyse
from controlplane.bench_choice import chosen
from controlplane.bench_propose import propose
from controlplane.bench_read import read
from controlplane.bench_records import BenchFile, BenchPoint
from controlplane.bench_report import html

KIT = Path(__file__).parent / "samples/h200-0.5.17"
MADE = 1_800_000_000_000


@pytest.fixture(scope="module")
def recorded() -> str:
    file = chosen(read(KIT / "bench.jsonl"), backend="fa3", label="acc2.0")
    return html(file, analyse(file, "bench.jsonl"), propose(file.points), MADE)


def test_drawing_leaves_no_import_finder_of_an_old_kind_behind(recorded: str) -> None:
    assert recorded
    assert [f for f in sys.meta_path if not hasattr(f, "find_spec")] == []
    assert metadata.version("specdeck")


class _Links(HTMLParser):
    """Everything that would make a browser fetch something or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "img", "object", "embed", "base", "form"):
            self.found.append(tag)
        self.found += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "srcset") or name.startswith("on")
        ]


def test_it_fetches_nothing_and_runs_nothing(recorded: str) -> None:
    links = _Links()
    links.feed(recorded)
    assert links.found == []
    assert "@import" not in recorded
    assert not re.findall(r"url\((?!#)", recorded)
    assert set(re.findall(r"https?://[^\"'\s<)]+", recorded)) <= {"http://www.w3.org/2000/svg"}


def test_every_picture_is_a_well_formed_drawing_of_all_points(recorded: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", recorded, re.DOTALL)
    assert len(drawings) == 2
    for drawing in drawings:
        tree = ET.fromstring(drawing)
        dots = [one for one in tree.iter() if one.get("class") == "dot reactive tooltip-trigger"]
        assert len(dots) >= 6 + 5


def test_verdict_interval_tie_crossover_and_thresholds_are_there(recorded: str) -> None:
    assert "speculation pays up to 64" in recorded
    assert re.search(r"<td>0\.8\d\d to 1\.0\d\d</td>", recorded)
    assert "tie" in recorded
    assert "low 64, high 256" in recorded
    assert "Proposed thresholds" in recorded
    assert "busier from" in recorded
    assert "2027-01-15 08:00 UTC" in recorded


def test_text_from_a_file_is_shown_and_never_obeyed() -> None:
    evil = "<script>alert(1)</script>"
    points = (
        BenchPoint(tier="s3k1d4", concurrency=8, tok_s=150, label=evil, gpu=evil),
        BenchPoint(tier="plain", concurrency=8, tok_s=100, gpu=evil, label=evil),
        BenchPoint(
            tier="s3k1d4", concurrency=16, tok_s=1, label=evil, gpu=evil, not_comparable=(evil,)
        ),
    )
    file = BenchFile(points=points, notes=(evil,), client=(evil,), setup_key=evil)
    shown = html(file, analyse(file, evil), None, MADE, title=evil)
    links = _Links()
    links.feed(shown)
    assert links.found == []
    assert "&lt;script&gt;" in shown


def test_a_simulated_or_unfinished_benchmark_says_so() -> None:
    points = (
        BenchPoint(tier="s3k1d4", concurrency=8, tok_s=150),
        BenchPoint(tier="plain", concurrency=8, tok_s=100),
    )
    file = BenchFile(points=points, simulated=True, complete=False)
    shown = html(file, analyse(file), None, MADE)
    assert "simulated from a measured table" in shown
    assert "was not finished" in shown


def test_a_file_without_a_comparable_point_still_makes_a_report() -> None:
    file = BenchFile(points=(BenchPoint(tier="s3k1d4", concurrency=8, tok_s=150),))
    shown = html(file, analyse(file), None, MADE)
    assert "Nothing can be said" in shown
    assert "<svg" not in shown
