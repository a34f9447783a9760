"""Engines from a file: what it may say, what is refused and where, and when a change counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.engines_file import EnginesFile, FileSource, parse
from controlplane.errors import SourceError

ONE = '[[engines]]\nid = "a"\nurl = "http://10.0.0.1:30000"\ngroup = "prod"\n'
TWO = ONE + '\n[[engines]]\nurl = "http://10.0.0.2:30000"\n'


def refusal(text: str | bytes, name: str = "engines.toml") -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(SourceError) as caught:
        parse(data, Path(name))
    return str(caught.value)


def test_toml_and_json_say_the_same() -> None:
    listed = [
        {"id": "a", "url": "http://10.0.0.1:30000", "group": "prod"},
        {"url": "http://10.0.0.2:30000"},
    ]
    from_toml = parse(TWO.encode(), Path("x.toml"))
    from_json = parse(json.dumps({"engines": listed}).encode(), Path("x.json"))
    assert from_toml == from_json
    assert [one.id for one in from_toml] == ["a", "10.0.0.2-30000"]


def test_mistakes_are_named_with_their_place() -> None:
    assert "engines.toml:1:" in refusal("[[engines\n")
    assert "engines.toml:3:1: engines.0.poll_s" in refusal(
        '[[engines]]\nurl = "http://a:1"\npoll_s = "often"\n'
    )
    assert "engines.json:1:" in refusal('{"engines": [', "engines.json")
    assert "colour" in refusal('[[engines]]\nurl = "http://a:1"\ncolour = "red"\n')
    assert "engine url http://a:1 appears twice" in refusal(
        '[[engines]]\nid = "x"\nurl = "http://a:1"\n[[engines]]\nid = "y"\nurl = "http://a:1"\n'
    )
    assert "is not UTF-8 text" in refusal(b"\xff\xfe")


def test_an_empty_file_is_no_empty_fleet() -> None:
    assert "write engines = [] to look after none" in refusal("")
    assert parse(b"engines = []\n", Path("x.toml")) == ()
    assert "engines" in refusal("null", "engines.json")


async def test_a_change_counts_once_it_was_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(ONE)
    source = FileSource(path)
    first = await source.look()
    assert first is not None
    assert [one.id for one in first] == ["a"]
    path.write_text(TWO[:-10])  # half written
    assert await source.look() is None
    path.write_text(TWO)
    assert await source.look() is None
    second = await source.look()
    assert second is not None
    assert len(second) == 2
    assert await source.look() == second


async def test_a_bad_file_is_told_each_time_until_it_is_good_again(tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    source = FileSource(path)
    with pytest.raises(SourceError, match="cannot be read"):
        await source.look()
    path.write_text(ONE)
    assert await source.look()
    path.write_text("[[")
    assert await source.look() is None
    for _ in range(2):
        with pytest.raises(SourceError, match="not TOML"):
            await source.look()
    path.write_text(ONE)
    assert await source.look()
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        await source.look()


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8")))
@pytest.mark.parametrize("name", ["x.toml", "x.json"])
def test_any_bytes_are_engines_or_a_sentence(name: str, data: bytes) -> None:
    said = ""
    try:
        found = parse(data, Path(name))
    except SourceError as error:
        said = str(error)
    assert said.startswith(name) if said else EnginesFile(engines=found).engines == found


def test_numbers_and_nesting_beyond_reason_are_refused_too() -> None:
    assert refusal(f'{{"engines": [{{"url": {"9" * 5000}}}]}}', "x.json").startswith("x.json")
    assert refusal("[" * 100_000, "x.json").startswith("x.json")
    assert refusal(f"engines = {'9' * 5000}", "x.toml").startswith("x.toml")
