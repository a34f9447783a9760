"""The table of touched attributes, and the check that reads SGLang's source without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_patch import adapter, hooks
from engine_patch.hooks import Kind, Touch, Verdict

MODULE = "sglang.srt.managers.thing"
SOURCE = """
import os

app: int = 1
FIRST, SECOND = 1, 2


class Base:
    def inherited(self, batch): ...


class Thing(Base):
    declared: int
    plain = 3

    def __init__(self, size, path=None):
        self.size = size
        self.low, self.high = 1, 2
        if path:
            self.late: int = 4

    @property
    def shown(self): ...

    @staticmethod
    def free(batch): ...

    async def send(self, obj, *, wait=True): ...


async def go(server_args, more=None): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that looks like an installed ``sglang`` with one module."""
    file = tmp_path / "sglang" / "srt" / "managers" / "thing.py"
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    return tmp_path / "sglang"


def _check(root: Path, name: str, kind: Kind, params: tuple[str, ...] | None = None) -> str:
    verdict = hooks.check(root, version="1.2.3", table=[Touch(MODULE, name, kind, "use", params)])
    return verdict.mismatches[0] if verdict.mismatches else ""


@pytest.mark.parametrize(
    ("name", "kind", "params"),
    [
        ("app", Kind.MODULE_NAME, None),
        ("SECOND", Kind.MODULE_NAME, None),
        ("Thing", Kind.CLASS, None),
        ("go", Kind.FUNCTION, ("server_args",)),
        ("go", Kind.FUNCTION, ("server_args", "more")),
        ("Thing.__init__", Kind.METHOD, ("size", "path")),
        ("Thing.send", Kind.METHOD, ("obj",)),
        ("Thing.inherited", Kind.METHOD, ("batch",)),
        ("Thing.size", Kind.ATTRIBUTE, None),
        ("Thing.high", Kind.ATTRIBUTE, None),
        ("Thing.late", Kind.ATTRIBUTE, None),
        ("Thing.declared", Kind.ATTRIBUTE, None),
        ("Thing.plain", Kind.ATTRIBUTE, None),
        ("Thing.shown", Kind.ATTRIBUTE, None),
    ],
)
def test_what_is_there_is_found(
    root: Path, name: str, kind: Kind, params: tuple[str, ...] | None
) -> None:
    assert _check(root, name, kind, params) == ""


@pytest.mark.parametrize(
    ("name", "kind", "params", "words"),
    [
        ("gone", Kind.MODULE_NAME, None, "no name"),
        ("Gone", Kind.CLASS, None, "no class"),
        ("Gone.method", Kind.METHOD, None, "no class"),
        ("Thing.gone", Kind.METHOD, None, "no method"),
        ("Thing.gone", Kind.ATTRIBUTE, None, "no attribute"),
        ("go", Kind.FUNCTION, ("args",), "takes (server_args, more) where (args)"),
        ("Thing.send", Kind.METHOD, ("obj", "more"), "takes (obj) where (obj, more)"),
        ("Thing.__init__", Kind.METHOD, (), "takes (size, path) where () was expected"),
    ],
)
def test_what_differs_is_named(
    root: Path, name: str, kind: Kind, params: tuple[str, ...] | None, words: str
) -> None:
    assert words in _check(root, name, kind, params)


def test_a_missing_or_unreadable_module_is_a_mismatch(root: Path) -> None:
    (root / "broken.py").write_text("def (")
    table = [Touch(f"sglang.{name}", "x", Kind.CLASS, "use") for name in ("gone", "broken")]
    assert hooks.check(root, version="1", table=table).mismatches == (
        "no module sglang.gone",
        "no module sglang.broken",
    )


def test_an_attribute_may_lie_where_an_older_version_has_it(root: Path) -> None:
    touch = Touch("sglang.newer", "Fields.declared", Kind.ATTRIBUTE, "use", older=(MODULE, "Thing"))
    assert hooks.check(root, version="1", table=[touch]).fits
    absent = Touch("sglang.newer", "Fields.absent", Kind.ATTRIBUTE, "use", older=(MODULE, "Thing"))
    assert not hooks.check(root, version="1", table=[absent]).fits


def test_the_refusal_is_one_sentence_with_versions_difference_and_remedy() -> None:
    sentence = Verdict(
        "9.9.9", ("method a.b takes (c) where (d) was expected", "no class e")
    ).sentence("0.1.0")
    assert "\n" not in sentence
    for part in ("plugin refused", "0.1.0", "9.9.9", "a.b takes (c)", "1 more", "0.5.23", "check"):
        assert part in sentence


def test_a_verdict_without_mismatches_has_no_refusal_even_on_an_untested_version() -> None:
    verdict = Verdict("0.5.99")
    assert verdict.fits
    assert not verdict.tested
    assert verdict.sentence("0.1.0") == ""


def test_every_row_that_names_a_hook_has_a_function_and_every_function_a_row() -> None:
    assert {touch.name for touch in hooks.TABLE if touch.hook} == set(adapter.FUNCTIONS)


def test_no_name_is_listed_twice() -> None:
    paths = [touch.path for touch in hooks.TABLE]
    assert len(paths) == len(set(paths))


def test_the_documentation_lists_every_touched_name() -> None:
    text = (Path(__file__).parent.parent / "docs" / "plugin.md").read_text()
    missing = [t.path for t in hooks.TABLE if t.module not in text or f"`{t.name}`" not in text]
    assert not missing


def test_the_documented_versions_are_those_that_count_as_tested() -> None:
    text = (Path(__file__).parents[1] / "docs/engine.md").read_text()
    table = text[text.index("| SGLang | Attributes checked") :]
    tested, refused = set[str](), set[str]()
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            break
        named, verdict = [cell.strip() for cell in line.strip("|").split("|")[:2]]
        first, _, last = named.partition(" to ")
        ends = [int(version.rpartition(".")[2]) for version in (first, last or first)]
        versions = {f"0.5.{number}" for number in range(ends[0], ends[1] + 1)}
        (refused if verdict == "refused" else tested).update(versions)
    assert tested == set(hooks.TESTED) == set(hooks.KNOWN)
    assert refused == {"0.5.18"}
