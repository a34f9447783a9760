"""The store's words for what PostgreSQL says, by its error codes (appendix A of its manual)."""

from __future__ import annotations

from sqlalchemy.exc import TimeoutError as PoolTimeout

from store.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreUnreachable,
    StoreUnwritable,
)

_BUSY = ("55P03", "40P01", "40001", "57014")  # lock not available, deadlock, serialization, cancel
_LOST = ("08", "57P", "53300", "53400")  # connection, shutdown and start-up, too many connections
_DAMAGED = ("XX001", "XX002", "42P01", "42703")  # data, an index; a table or a column is gone
_FORBIDDEN = ("42501", "3F000", "28")  # privilege, no schema to write in, authorization
_DISK = ("58",)  # the server's operating system


def explain(error: BaseException, name: str) -> StoreError:
    """``StoreRefused`` if only the record is to blame."""
    state = getattr(error, "sqlstate", None) or ""
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if isinstance(error, PoolTimeout):
        return StoreBusy(f"{name}: too many reads at once; try again.")
    if state.startswith(_BUSY):
        return StoreBusy(
            f"{name} was locked by another program ({text}). End its transaction; nothing was "
            "written meanwhile."
        )
    # The driver gives no code where it was the connection that failed.
    if state.startswith(_LOST) or (not state and type(error).__name__ == "OperationalError"):
        return StoreUnreachable(
            f"{name} cannot be reached: {text}. Look whether the server runs and lets this user "
            "in; docs/operations.md says how to make role and database."
        )
    if state == "53100":
        return StoreUnwritable(
            f"{name} cannot grow: the server's disk is full. Free some space; nothing stored was "
            "lost."
        )
    if state == "25006":
        return StoreUnwritable(f"{name} is read-only ({text}): give the address of the primary.")
    if state.startswith(_FORBIDDEN):
        return StoreUnwritable(
            f"{name} cannot be used by this user: {text}. Make it the owner of the database."
        )
    if state.startswith(_DISK):
        return StoreUnwritable(f"{name}: the server's disk failed ({text}). Check the disk.")
    if state.startswith(_DAMAGED):
        return StoreCorrupt(
            f"{name} is damaged ({text}). Nothing was deleted. Restore a backup into a new "
            "database, or give specdeck an empty one."
        )
    return StoreRefused(f"{name}: not stored: {text}")
