"""A store in a PostgreSQL database: how it is reached, claimed and written, and what it says.

Durability: ``synchronous_commit`` is off for transactions of ticks alone, on for what a person or
the audit relies on.  A crash of the server may cost the last of the former (PostgreSQL's
``wal_writer_delay``, three times 0.2 s), never of the latter.

The driver, psycopg, comes with the extra ``postgres`` and is imported when it is needed.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import URL, Engine, create_engine
from sqlalchemy.pool import NullPool, QueuePool

from store import postgres_migrations
from store.errors import StoreBusy, StoreError
from store.postgres_errors import explain

if TYPE_CHECKING:
    import psycopg

LOCK_KEY = 0x73706463
"""First half of the advisory lock's key, "spdc"; the second is a hash of the schema's name."""
LOCK_WAIT_S = 3.0
"""How long an opener waits for the session of a process that has just died, in seconds."""
SKIPPED_IDS = 100_000
"""Ids left out after an unclean end; more than the server can lose of ticks by a crash."""
_DRIVERS = ("postgresql", "postgresql+psycopg")
_READERS_KEPT, _READERS_MORE = 4, 36

SETTINGS = {
    "lock_timeout": "5s",
    # The server then notices within half a minute that a machine is gone, and ends its claim.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
_KEPT_ALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_LOCK = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
_HOLDER = """SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = %s AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.objid::bigint = hashtext(current_schema())::bigint & 4294967295"""


class PostgresDatabase:
    """One schema of a database, by its URL.  It is its own claim: the session of its writer.

    Raises:
        StoreError: the URL cannot be used, or the driver is missing.
    """

    def __init__(self, url: URL) -> None:
        if url.drivername not in _DRIVERS:
            raise StoreError(
                f"databases are reached as postgresql+psycopg://…, not {url.drivername}://"
            )
        if "@" in f"{url.host}{url.database}":
            raise StoreError(
                "an @ in the password of a database URL is written %40; this URL has more than one"
            )
        if not url.database:
            raise StoreError("the database URL names no database: …://USER@HOST/NAME")
        # Without its query, which may hold secrets as well.
        self.name = URL.create(
            "postgresql", url.username, None, url.host, url.port, url.database
        ).render_as_string()
        self._parameters: dict[str, Any] = _KEPT_ALIVE | _parameters(url)
        self._parked: psycopg.Connection[Any] | None = None

    @property
    def path(self) -> Path:
        """There is none."""
        raise StoreError(
            f"{self.name} is a PostgreSQL database and no file: copy it with pg_dump, and let the "
            "server look after its disk"
        )

    # the claim

    def claim(self) -> PostgresDatabase:
        """By a session's advisory lock, which ends with the session, whatever ends that."""
        self._parked = self._claimed(LOCK_WAIT_S)
        return self

    def release(self) -> None:
        """Close the session that holds the claim, unless the writer's engine has done it."""
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.close()

    def prepare(self) -> None:
        """Migrate in the claim's session."""
        assert self._parked is not None  # after ``claim``
        try:
            postgres_migrations.inspect(self._parked, self.name, read_only=False)
            postgres_migrations.migrate(self._parked)
            _take_up(self._parked)
        except _driver().Error as error:
            raise self.explain(error) from error

    def check_readable(self) -> None:
        """Look in a session of its own."""
        try:
            with self._connect("reader") as session:
                postgres_migrations.inspect(session, self.name, read_only=True)
        except _driver().Error as error:
            raise self.explain(error) from error

    # sessions

    def writer_engine(self) -> Engine:
        """First the claim's session; a later one claims anew and is refused like a stranger."""
        return create_engine(
            "postgresql+psycopg://",
            creator=self._writer_session,
            poolclass=NullPool,
            use_native_hstore=False,
        )

    def reader_engine(self) -> Engine:
        """Read-only sessions, tried before each use: the server may have been restarted."""
        return create_engine(
            "postgresql+psycopg://",
            creator=self._reader_session,
            poolclass=QueuePool,
            pool_size=_READERS_KEPT,
            max_overflow=_READERS_MORE,
            pool_timeout=10,
            pool_pre_ping=True,
            use_native_hstore=False,
        )

    def _connect(self, role: str) -> psycopg.Connection[Any]:
        """A session in autocommit.

        Raises:
            psycopg.Error: the server cannot be reached.
        """
        driver = _driver()
        me = f"specdeck {role}: process {os.getpid()} on {socket.gethostname()}"[:63]
        parameters = self._parameters | {"application_name": me}
        session: psycopg.Connection[Any] = driver.connect(**parameters, autocommit=True)
        try:
            for name, value in SETTINGS.items():
                session.execute("SELECT set_config(%s, %s, false)", (name, value))
        except BaseException:
            session.close()
            raise
        return session

    def _claimed(self, patience_s: float) -> psycopg.Connection[Any]:
        driver = _driver()
        try:
            session = self._connect("writer")
        except driver.Error as error:
            raise self.explain(error) from error
        try:
            until = time.monotonic() + patience_s
            while session.execute(_LOCK, (LOCK_KEY,)).fetchone() != (True,):
                if time.monotonic() >= until:
                    raise self._taken(session)
                time.sleep(0.1)
            # A server may be set up to answer before the disk has it; here that is chosen by us.
            session.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
        except driver.Error as error:
            session.close()
            raise self.explain(error) from error
        except BaseException:
            session.close()
            raise
        return session

    def _taken(self, session: psycopg.Connection[Any]) -> StoreBusy:
        row = session.execute(_HOLDER, (LOCK_KEY,)).fetchone()
        holder = str(row[0]).partition(": ")[2] if row else ""
        return StoreBusy(
            f"{self.name} is open for writing by {holder or 'another process'}. Stop that control "
            "plane, or give this one a database of its own. Reading is still possible."
        )

    def _writer_session(self) -> psycopg.Connection[Any]:
        session, self._parked = self._parked, None
        if session is None:
            session = self._claimed(0.0)
            try:
                # It may be another server by now, or another release may have upgraded it.
                postgres_migrations.inspect(session, self.name, read_only=True)
                _take_up(session)
            except BaseException:
                session.close()
                raise
        session.autocommit = False
        return session

    def _reader_session(self) -> psycopg.Connection[Any]:
        driver = _driver()
        session = self._connect("reader")
        session.autocommit = False
        session.read_only = True
        session.isolation_level = driver.IsolationLevel.REPEATABLE_READ
        return session

    # transactions

    def begin(self, connection: Connection, *, durable: bool) -> None:
        """``synchronous_commit`` decides how durable; the driver begins by itself."""
        if not durable:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")

    def begin_reading(self, connection: Connection) -> None:
        """Nothing: sessions of readers are ``REPEATABLE READ``."""

    def sync(self, connection: Connection) -> None:
        """Nothing: the server does it several times a second."""

    def free_space(self, connection: Connection) -> None:
        """Nothing: the server's autovacuum does it."""

    def finish(self, connection: Connection) -> None:
        """Take back the mark of ``_take_up``: everything is on the disk with this commit."""
        connection.exec_driver_sql("DELETE FROM meta WHERE key = 'writing'")
        connection.commit()

    def explain(self, error: BaseException) -> StoreError:
        """See ``store.postgres_errors``."""
        return explain(error, self.name)


def _parameters(url: URL) -> dict[str, Any]:
    """The URL in libpq's words."""
    dialect: Any = PGDialect_psycopg
    _, parameters = dialect().create_connect_args(url)
    return {key: value for key, value in parameters.items() if key != "context"}


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise StoreError(
            "PostgreSQL needs a driver that is not installed: pip install 'specdeck[postgres]'"
        ) from error
    return psycopg


def _take_up(session: psycopg.Connection[Any]) -> None:
    """Mark the database as written; a mark that is there already tells of an unclean end.

    A crash of the server may have taken ticks whose ids a client has seen.  Given out again they
    would make that client skip new ticks, and an id of a template would mean another text.
    """
    with session.transaction():
        if session.execute("SELECT FROM meta WHERE key = 'writing'").fetchone() is not None:
            for table in ("ticks", "tick_templates"):
                session.execute(
                    "SELECT setval(ids, nextval(ids) - 1 + %s) "
                    "FROM CAST(pg_get_serial_sequence(%s, 'id') AS regclass) AS ids",
                    (SKIPPED_IDS, table),
                )
        session.execute(
            "INSERT INTO meta (key, value) VALUES ('writing', %s) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (f"process {os.getpid()} on {socket.gethostname()}",),
        )
