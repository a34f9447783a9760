"""What each part really loads, proven in a fresh interpreter; the contracts say what it may."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent

DATABASE = {"sqlmodel", "sqlalchemy", "sqlite3"}
SERVER = {"fastapi", "starlette", "uvicorn"}
SCREEN = {"textual", "rich"}
ENGINE = {"sglang", "torch", "flashinfer"}
CLIENT = {"httpx", "httpx_sse"}
OURS = {"console", "controlplane", "store"}

_PROBE = """
import importlib, json, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({m.partition(".")[0] for m in set(sys.modules) - before})))
"""


def _loaded(*modules: str) -> set[str]:
    """Top-level names that importing ``modules`` adds to a fresh interpreter."""
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROBE, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return set(json.loads(answer.stdout))


def _modules(package: str) -> list[str]:
    """Every module of a package, except the ones that run something when imported."""
    files = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in files]
    return [n.removesuffix(".__init__") for n in names if not n.endswith("__main__")]


def test_the_whole_console_loads_no_database_and_no_web_framework() -> None:
    loaded = _loaded(*_modules("console"))
    assert "textual" in loaded
    assert not loaded & (DATABASE | {"fastapi", "uvicorn"} | ENGINE)


def test_the_view_model_loads_no_screen_and_no_client() -> None:
    loaded = _loaded("console.board")
    assert not loaded & (SCREEN | CLIENT | DATABASE | SERVER | ENGINE)


def test_the_typed_client_loads_no_server_and_no_database() -> None:
    loaded = _loaded("controlplane.client")
    assert "httpx" in loaded
    assert not loaded & (SERVER | DATABASE | ENGINE)


def test_the_load_generator_loads_no_server_and_no_database() -> None:
    loaded = _loaded("controlplane.load")
    assert not loaded & (SERVER | DATABASE | SCREEN | ENGINE | {"pydantic_settings"})


def test_the_contract_loads_pydantic_and_the_standard_library_alone() -> None:
    loaded = _loaded("engine_patch.contract")
    base = {
        "engine_patch",
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions",
        "typing_inspection",
    }
    foreign = {n for n in loaded if n not in sys.stdlib_module_names} - base
    # pydantic's compiled core registers helpers of its own under private names.
    assert not {n for n in foreign if not n.startswith("_")}


def test_the_records_load_no_framework() -> None:
    loaded = _loaded("store.records", "store.observations", "store.policies")
    assert not loaded & (DATABASE | SERVER | CLIENT | SCREEN | ENGINE | {"asyncio"})


def test_the_pure_core_loads_no_framework_and_no_network() -> None:
    loaded = _loaded("controlplane.policy", "controlplane.controller", "controlplane.messages")
    assert not loaded & (DATABASE | SERVER | CLIENT | SCREEN | ENGINE | {"asyncio"})


@pytest.mark.parametrize("module", ["engine_patch.plugin", "engine_patch.check"])
def test_the_plugin_imports_without_sglang_and_beside_nothing_of_ours(module: str) -> None:
    loaded = _loaded(module)
    assert not loaded & (ENGINE | DATABASE | SCREEN | CLIENT | OURS)


def test_the_demo_imports_none_of_the_parts_it_starts() -> None:
    loaded = _loaded("engine_patch.dispatch", "engine_patch.demo")
    assert not loaded & (OURS | DATABASE | SERVER | SCREEN | CLIENT | ENGINE)


def test_the_import_contracts_are_kept() -> None:
    # In a process of its own: it sets up logging anew, and the loggers of other tests fall silent.
    code = "import sys; from importlinter import cli; sys.exit(cli.lint_imports(no_cache=True))"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def _imported(package: str) -> dict[str, str]:
    """Distributions that a package's modules import anywhere, in functions too, and one place."""
    known = metadata.packages_distributions()
    found: dict[str, str] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                for distribution in known.get(name.partition(".")[0], ()):
                    found.setdefault(canonicalize_name(distribution), str(path.relative_to(ROOT)))
    return found


def _brought(*extras: str) -> set[str]:
    """The distributions that installing the package with these extras brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    brought: set[str] = set()
    while asked:
        one = Requirement(asked.pop())
        name = canonicalize_name(one.name)
        if name in brought or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        brought.add(name)
        asked += metadata.requires(name) or []
    return brought


@pytest.mark.parametrize(
    ("package", "extras", "announced"),
    [
        # What comes with an extra of its own; without it the command names that extra.
        ("controlplane", ("controlplane",), {"pygal"}),
        ("store", ("controlplane",), {"psycopg", "pyarrow"}),
        ("console", ("console",), {"aiohttp", "aiohttp-jinja2", "jinja2", "textual-serve"}),
    ],
)
def test_an_extra_brings_all_that_its_package_imports(
    package: str, extras: tuple[str, ...], announced: set[str]
) -> None:
    imported = _imported(package)
    assert "pydantic" in imported
    missing = {n: p for n, p in imported.items() if n not in _brought(*extras) | announced}
    assert missing == {}
