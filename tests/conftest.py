"""What all tests share: an interrupt that arrives, and databases for the tests of the store.

The same store tests run over SQLite and PostgreSQL.

What only some tests need is imported where it is needed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and children inherit it: Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer
    from tests.store_place import Place

KINDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of a process; they are skipped where there is none."""
    from tests.postgres_server import NONE, make_server

    server = make_server()
    if server is None:
        if os.environ.get("CI"):
            pytest.fail(NONE)
        pytest.skip(NONE)
    yield server
    server.clean_up()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """A database with the newest schema and nothing in it."""
    return postgres_server.emptied()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An unused database of each kind."""
    from tests.store_place import Place

    if request.param == "sqlite":
        return Place(str(tmp_path / "s.db"))
    return Place(request.getfixturevalue("postgres_url"))
