"""Links to a moment: written, read back, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.links import LinkError, Moment, read, written
from console.open_cli import run
from console.places import BY_ID

URL = "http://127.0.0.1:7311"


@given(
    st.text(min_size=1, max_size=64).filter(lambda text: text.isprintable()),
    st.integers(0, 10**12),
    st.sampled_from(sorted(BY_ID)),
)
def test_a_link_names_the_same_moment_again(engine_id: str, seq: int, place: str) -> None:
    moment = Moment(URL, engine_id, seq, place)
    link = written(moment, 1_795_953_751_000)
    assert read(link) == moment
    assert "at=2026-11-29T12:02:31Z" in link
    assert link.isascii()
    assert " " not in link


def test_a_password_in_the_address_never_gets_into_a_link() -> None:
    link = written(Moment("https://me:s3cret@deck.example/base", "e1", 7))
    assert "s3cret" not in link
    assert read(link).url == "https://deck.example/base"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("nonsense", "begins with http"),
        ("ftp://host/#engine=e1", "begins with http"),
        ("http://[::1/#engine=e1", "is no link"),
        (URL, "names no engine"),
        (f"{URL}/#engine=e1&seq=x", "no observation number"),
        (f"{URL}/#engine=e1&seq=-1", "no observation number"),
        (f"{URL}/#engine=e1&screen=nowhere", "none of"),
    ],
)
def test_what_is_no_link_is_refused_with_what_one_looks_like(
    link: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LinkError, match=words):
        read(link)
    assert run([link]) == 2
    assert words in capsys.readouterr().err
