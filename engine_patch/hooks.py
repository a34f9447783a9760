"""The check that every SGLang attribute the plugin touches is what we think.

SGLang gives no promise about its inside, so the table in ``touches`` is read against its *source*
before a single hook is registered: whatever was renamed, moved or given other parameters is found
at load instead of in the middle of a decode batch.  Reading the source, not the imported modules,
keeps the check free of side effects: it runs without a GPU, without importing torch, in about
0.3 s.

Standard library only.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata, util
from pathlib import Path

from engine_patch.source import Function, Source, parameters
from engine_patch.touches import TABLE, Kind, Place, Touch

__all__ = ["TABLE", "Kind", "Place", "Touch", "Verdict", "check"]

KNOWN = ("0.5.17", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
"""SGLang versions that the plugin was written for; others are refused, whatever their attributes.
0.5.18 computes wrong lengths in one of its own backends."""
TESTED = KNOWN
"""Those on which real servers were run; ``docs/engine.md`` says how far."""
_RELEASE = re.compile(r"(\d+\.\d+\.\d+)(\.post\d+)?(\+.*)?")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the plugin fits the SGLang that is installed.

    Args:
        version: SGLang's version, "unknown" if its metadata is missing.
        mismatches: what differs, one short phrase each; empty means that it fits.
    """

    version: str
    mismatches: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every touched name is as expected."""
        return not self.mismatches

    @property
    def tested(self) -> bool:
        """Whether this version is one the engine suite runs on."""
        return self.version in TESTED

    def sentence(self, plugin_version: str) -> str:
        """The refusal: versions, what differs, what to do.  "" if it fits."""
        if self.fits:
            return ""
        first, rest = self.mismatches[0], len(self.mismatches) - 1
        more = f" and {rest} more" if rest else ""
        remedy = (
            "it was changed after its release, so install it anew"
            if self.tested
            else f"install SGLang {TESTED[-1]} or a specdeck made for {self.version}"
        )
        return (
            f"plugin refused: specdeck {plugin_version} does not know this SGLang {self.version} "
            f"({first}{more}), so SGLang serves without it; {remedy}, "
            "and run 'specdeck engine check' for the whole list"
        )


def engine_root() -> Path | None:
    """The folder of the installed ``sglang`` package, None if there is none."""
    found = util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations)))


def engine_version() -> str:
    """The version of the installed SGLang, "unknown" if it has no metadata."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return "unknown"


def known(version: str) -> bool:
    """Whether the plugin was written for a version; a post-release counts as its release."""
    release = _RELEASE.fullmatch(version)
    return release is not None and release[1] in KNOWN


def version_of(root: Path | zipfile.Path) -> str:
    """The version that an ``sglang`` folder states, "unknown" if it states none."""
    for name in ("_version.py", "version.py"):
        try:
            text = (root / name).read_text(encoding="utf-8")
        except (OSError, KeyError):
            continue
        stated = re.search(r"^__version__ = .*?['\"]([^'\"]+)['\"]$", text, re.MULTILINE)
        if stated is not None:
            return stated[1]
    return "unknown"


def check(
    root: Path | zipfile.Path, *, version: str | None = None, table: Sequence[Touch] | None = None
) -> Verdict:
    """Compare SGLang's source below ``root`` (the ``sglang`` folder) with the table.

    Args:
        root: a folder, or one inside a wheel.
        version: of that SGLang, None for the installed one.
        table: None for the whole table, which also asks for a known version.
    """
    version = engine_version() if version is None else version
    sources: dict[str, Source | None] = {}
    mismatches: dict[str, None] = {}
    if table is None and not known(version):
        mismatches[f"version {version} is none of {', '.join(KNOWN)}"] = None

    def problem(touch: Touch) -> str:
        if touch.module not in sources:
            sources[touch.module] = Source.read(root, touch.module)
        source = sources[touch.module]
        return f"no module {touch.module}" if source is None else _problem(source, touch)

    # TABLE is looked up at the call, not bound as a default: it is one table for everybody.
    for touch in TABLE if table is None else table:
        found = problem(touch)
        if found and touch.older is not None:
            module, owner, *renamed = touch.older
            name = f"{owner}.{renamed[0] if renamed else touch.name.rpartition('.')[2]}"
            if not problem(replace(touch, module=module, name=name)):
                continue
        if found:
            mismatches[found] = None
    return Verdict(version, tuple(mismatches))


def _problem(source: Source, touch: Touch) -> str:
    """What is wrong with a touched name, "" if nothing."""
    owner, _, member = touch.name.rpartition(".")
    if touch.kind is Kind.FUNCTION:
        return _compare(touch, source.function(touch.name), bound=False)
    if touch.kind is Kind.MODULE_NAME:
        there = touch.name in source.names
    elif touch.kind is Kind.CLASS:
        there = touch.name in source.classes
    elif owner not in source.classes:
        return f"no class {touch.module}.{owner}"
    elif touch.kind is Kind.METHOD:
        return _compare(touch, source.method(owner, member), bound=True)
    else:
        there = source.has(owner, member)
    return "" if there else f"no {touch.kind} {touch.path}"


def _compare(touch: Touch, found: Function | None, *, bound: bool) -> str:
    if found is None:
        return f"no {touch.kind} {touch.path}"
    if touch.params is None:
        return ""
    names, required = parameters(found, bound=bound)
    for params in (touch.params, touch.older_params):
        if params is not None and names[: len(params)] == params and required <= len(params):
            return ""
    return (
        f"{touch.kind} {touch.path} takes ({', '.join(names)}) "
        f"where ({', '.join(touch.params)}) was expected"
    )
