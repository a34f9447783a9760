"""Results files: what is read, and how a bad one is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.bench_export import as_csv
from controlplane.bench_read import BenchFileError, read
from controlplane.bench_records import BenchFile, BenchPoint
from engine_patch.contract_words import OffKind

HEAD = "tier,num_steps,topk,num_draft_tokens,concurrency,tok_s,accept_length,cap,repeat\n"


def _read(tmp_path: Path, text: str | bytes, name: str = "r.csv") -> BenchFile:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def test_the_documented_columns_are_read(tmp_path: Path) -> None:
    file = _read(
        tmp_path,
        HEAD + "plain,,,,8,100.5,,256,1\noff,0,1,1,8,99,1.0,256,1\ns3k1d4,3,1,4,8,150,2.1,48,2\n",
    )
    plain, off, chain = file.points
    assert (plain.tier, plain.tok_s, plain.accept_length, plain.cap) == ("plain", 100.5, None, 256)
    assert (off.tier, off.accept_length) == ("off", 1.0)
    assert (chain.tier, chain.accept_length, chain.cap, chain.repeat) == ("s3k1d4", 2.1, 48, 2)
    assert chain.source == "r.csv:4"


def test_a_name_of_ones_own_labels_the_shape_beside_it(tmp_path: Path) -> None:
    (run,) = _read(tmp_path, HEAD + "eagle tree,2,4,16,8,150,,,\n").points
    assert (run.tier, run.label, run.repeat) == ("s2k4d16", "eagle tree", 1)


def test_repeats_are_counted_where_they_are_not_given(tmp_path: Path) -> None:
    file = _read(tmp_path, "tier,concurrency,tok_s\nplain,8,1\nplain,8,2\nplain,16,3\n")
    assert [(run.concurrency, run.repeat) for run in file.points] == [(8, 1), (8, 2), (16, 1)]


def test_a_spreadsheets_bom_line_ends_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbftier,concurrency,tok_s\r\n\r\nplain,8,1\r\n,,\r\n"
    assert len(_read(tmp_path, text).points) == 1


def test_columns_that_are_not_known_are_named(tmp_path: Path) -> None:
    file = _read(tmp_path, "tier,concurrency,tok_s,caps\nplain,8,1,48\n")
    assert file.notes == ("columns not used: caps",)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "1:1", "empty"),
        ("   \n", "1:1", "empty"),
        ("a,b\n1,2\n", "1:1", "no column tier, concurrency, tok_s"),
        (HEAD, "2:1", "no rows"),
        ("tier,tier,concurrency,tok_s\n", "1:1", "twice"),
        (HEAD + "plain,,,,8,abc,,,\n", "2:6", "tok_s: .*'abc'"),
        (HEAD + "plain,,,,8,0,,,\n", "2:6", "tok_s: .*greater than"),
        (HEAD + "plain,,,,8,nan,,,\n", "2:6", "tok_s: .*finite"),
        (HEAD + "plain,,,,8,inf,,,\n", "2:6", "tok_s: .*finite"),
        (HEAD + "plain,,,,8,100,,,\nplain,,,,0,100,,,\n", "3:5", "concurrency"),
        (HEAD + "plain,,,,8.5,100,,,\n", "2:5", "concurrency"),
        (HEAD + ",,,,8,100,,,\n", "2:1", "tier: empty"),
        (HEAD + "chain,,,,8,100,,,\n", "2:1", "give num_steps, topk and num_draft_tokens"),
        (HEAD + "chain,3,1,9,8,100,,,\n", "2:2", "a chain of 3 steps verifies 4"),
        (HEAD + "s3k1d4,3,1,5,8,100,,,\n", "2:4", "5 is not that of s3k1d4"),
        (HEAD + "s3k1d4,x,1,4,8,100,,,\n", "2:2", "no whole number"),
        (HEAD + "plain,3,1,4,8,100,,,\n", "2:2", "plain drafts nothing"),
        (HEAD + "s3k1d4,3,1,4,8,100,4.5,,\n", "2:1", "at most 4 tokens"),
        (HEAD + "s3k1d4,3,1,4,8,100,0.5,,\n", "2:7", "accept_length"),
        (HEAD + "plain,,,,8,100,,,1\nplain,,,,8,101,,,1\n", "3:9", "is also in line 2"),
        (HEAD + "plain,,,,8,100\n", "2:7", "6 fields, the header has 9"),
        (HEAD + 'plain,,,,8,"100\n', "2:1", "no CSV"),
        (HEAD + "plain,\0,,,8,100,,,\n", "2:1", "no text"),
        ('{"schema": "specdeck.bench/1", "points": [{"tier": "x"}]}', "1:1", "points.0.tier"),
        ('{"schema": "specdeck.bench/9", "points": []}', "1:1", "schema"),
        ('{"points": [}', "1:13", "Expecting value"),
        ('{"name": "plain", "conc": 1, "tok_s": 5}\n{"name": 1,\n', "2:12", ""),
        ('{"name": "plain", "conc": 1, "tok_s": 5}\n[1]\n', "2:1", "expected a JSON object"),
        (
            '{"name": "plain", "conc": 1, "tok_s": 5}\n{"name": "plain", "conc": 0, "tok_s": 5}\n',
            "2:1",
            "concurrency",
        ),
        ('{"name": "plain", "conc": 1, "tok_s": NaN}', "", "NaN is no number"),
        ('{"other": 1}', "1:1", "specdeck bench import"),
        ("[1, 2]", "1:1", "no column"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_column(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    with pytest.raises(BenchFileError, match=rf"r\.csv:{place}.*{words}"):
        _read(tmp_path, text)


def test_bytes_that_are_no_text_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(BenchFileError, match=r"r\.csv:2:7: no UTF-8"):
        _read(tmp_path, b"tier,concurrency,tok_s\nplain,\xff\n")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchFileError, match="No such file"):
        read(tmp_path / "none.csv")
    with pytest.raises(BenchFileError, match="Is a directory"):
        read(tmp_path)


def test_our_own_file_comes_back_as_it_was(tmp_path: Path) -> None:
    file = BenchFile(
        engine_id="a",
        setup_key="k",
        simulated=True,
        points=(BenchPoint(tier="off", off_kind=OffKind.PLAIN_PATH, concurrency=1, tok_s=3.5),),
    )
    assert _read(tmp_path, file.model_dump_json(by_alias=True), "own.json") == file


_words = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=8).map(
    str.strip
)


@st.composite
def _points(draw: st.DrawFn) -> BenchPoint:
    tier = draw(st.sampled_from(["plain", "off", "s3k1d4", "s2k4d16"]))
    most = {"plain": 1, "off": 1, "s3k1d4": 4, "s2k4d16": 3}[tier]
    return BenchPoint(
        tier=tier,
        concurrency=draw(st.integers(1, 4096)),
        tok_s=draw(st.floats(0.001, 1e9)),
        accept_length=draw(st.none() | st.floats(1, most)),
        cap=draw(st.none() | st.integers(1, 4096)),
        off_kind=draw(st.none() | st.sampled_from(OffKind)) if tier == "off" else None,
        label=draw(_words),
        backend=draw(st.none() | st.sampled_from(["fa3", "triton"])),
        gpu=draw(st.none() | st.just('Big "GPU", 80 GB')),
        queued=draw(st.none() | st.floats(0, 100)),
        graph_misses=draw(st.none() | st.integers(0, 9)),
        failed=draw(st.integers(0, 3)),
        client_bound=draw(st.booleans()),
        not_comparable=draw(st.sampled_from([(), ("real traffic",), ("a b", "c, d")])),
    )


@given(st.lists(_points(), min_size=1, max_size=6))
@settings(max_examples=80, deadline=None)
def test_what_is_exported_as_csv_is_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, points: list[BenchPoint]
) -> None:
    numbered = [run.model_copy(update={"repeat": at}) for at, run in enumerate(points, 1)]
    path = tmp_path_factory.mktemp("csv") / "round.csv"
    path.write_text(as_csv(numbered), encoding="utf-8", newline="")
    back = [run.model_copy(update={"source": ""}) for run in read(path).points]
    assert back == numbered


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "any"
    path.write_bytes(data)
    with contextlib.suppress(BenchFileError):
        read(path)


@pytest.mark.parametrize("numbers", ["1,1", ","])
def test_accept_lengths_too_far_apart_for_repeats_are_different_workloads(
    tmp_path: Path, numbers: str
) -> None:
    first, second = numbers.split(",")
    text = HEAD + f"plain,,,,8,100,,,1\ns3k1d4,3,1,4,8,150,2.0,,{first}\n"
    text += f"s3k1d4,3,1,4,8,250,3.0,,{second}\ns3k1d4,3,1,4,64,120,2.1,,{first}\n"
    file = _read(tmp_path, text)
    labels = [run.label for run in file.points]
    assert labels == ["", "accept 2.0", "accept 3.0", "accept 2.0"]
    assert {run.repeat for run in file.points} == {1}
    assert "different workloads" in file.notes[0]


def test_repeats_that_say_so_are_repeats_whatever_they_accepted(tmp_path: Path) -> None:
    text = HEAD + "s3k1d4,3,1,4,8,150,2.0,,1\ns3k1d4,3,1,4,8,250,3.0,,2\n"
    assert {run.label for run in _read(tmp_path, text).points} == {""}
