"""The migrations of ``store.migrations`` on PostgreSQL.

The table ``meta`` holds what SQLite keeps in pragmas: ``application``, whose the database is, and
``schema_version``, the number of migrations it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from store.errors import StoreForeign
from store.migrations import MIGRATIONS, Migration, judge, release

if TYPE_CHECKING:
    from psycopg import Connection

APPLICATION = "specdeck"
_META = 'CREATE TABLE meta (key TEXT COLLATE "C" PRIMARY KEY, value TEXT COLLATE "C" NOT NULL)'
# Tables of an extension (PostGIS brings some) are nobody's data.
_TABLES = """SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')"""


def _meta(connection: Connection[Any]) -> dict[str, str]:
    """Facts about the database; empty where ``meta`` is missing or another program's."""
    columns = connection.execute(
        "SELECT count(*) FROM information_schema.columns WHERE table_schema = current_schema() "
        "AND table_name = 'meta' AND column_name IN ('key', 'value')"
    ).fetchone()
    if columns != (2,):
        return {}
    return {str(key): str(value) for key, value in connection.execute("SELECT * FROM meta")}


def schema_version(connection: Connection[Any]) -> int:
    """The number of migrations the database has seen; 0 for an empty one."""
    return int(_meta(connection).get("schema_version", "0"))


def inspect(
    connection: Connection[Any],
    name: str,
    *,
    read_only: bool,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> int:
    """Whether this specdeck may use the database; changes nothing.

    Returns:
        Its schema version.

    Raises:
        StoreForeign: it holds another program's tables.
        StoreNewer: a schema this build does not know.
        StoreOlder: an older schema that a read-only opener cannot upgrade.
    """
    meta = _meta(connection)
    tables = [str(row[0]) for row in connection.execute(_TABLES)]
    if tables and meta.get("application") != APPLICATION:
        shown = ", ".join(sorted(tables)[:3])
        raise StoreForeign(
            f"{name} holds tables of another program ({shown}), not specdeck's. Nothing was "
            "changed. Give specdeck a database of its own (createdb)."
        )
    version = int(meta.get("schema_version", "0"))
    needed = release(meta.get("needs_specdeck"))
    judge(name, version, needed, len(migrations), read_only=read_only)
    return version


def migrate(
    connection: Connection[Any], *, migrations: Sequence[Migration] = MIGRATIONS
) -> tuple[int, int]:
    """Bring the database to the newest schema, one transaction per step, under the writer's claim.

    The connection must be in autocommit.  A step that fails leaves the version before it.

    Returns:
        The version before and after.
    """
    before = schema_version(connection)
    for number, migration in enumerate(migrations[before:], start=before + 1):
        with connection.transaction():
            if number == 1:
                connection.execute(_META)
            for statement in migration.postgres:
                connection.execute(statement.encode())
            for key, value in (
                ("application", APPLICATION),
                ("needs_specdeck", migration.since),
                ("schema_version", str(number)),
            ):
                connection.execute(
                    "INSERT INTO meta (key, value) VALUES (%s, %s) "
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (key, value),
                )
    return before, schema_version(connection)
