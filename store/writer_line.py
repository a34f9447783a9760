"""The writer's connection to the database."""

from __future__ import annotations

import logging

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from store.database import Database
from store.errors import StoreError, StoreRefused, StoreUnreachable

_log = logging.getLogger("specdeck.store")


class WriterLine:
    """The only connection that writes.  One that is lost is made anew by ``renew``.

    Raises:
        StoreError: the first connection cannot be made.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._engine = database.writer_engine()
        self._lost = False
        self.connection: Connection = self._engine.connect()

    def renew(self) -> bool:
        """Connect again if the connection was lost.

        Returns:
            Whether it is a new one: what was remembered of unfinished transactions is then void,
            and so may be the newest of what was committed without waiting for the disk.

        Raises:
            StoreError: the database cannot be reached, or another process has taken it over.
        """
        if not self._lost:
            return False
        self.connection = self._engine.connect()
        self._lost = False
        _log.warning("%s is connected again", self._database.name)
        return True

    def begin(self, *, durable: bool) -> None:
        """Open a transaction; ``durable``: its commit waits for the disk."""
        self._database.begin(self.connection, durable=durable)

    def sync(self) -> None:
        """Force what was committed without waiting to the disk."""
        try:
            if not self._lost:
                self._database.sync(self.connection)
        except SQLAlchemyError as error:
            _log.warning("%s", self.explain(error))

    def free_space(self) -> None:
        """See ``Database.free_space``."""
        self._database.free_space(self.connection)

    def undo(self, why: StoreError) -> None:
        """Roll back after ``why``; a lost connection is given up."""
        try:
            self.connection.rollback()
        except SQLAlchemyError as error:
            _log.warning("%s", self.explain(error))
        if isinstance(why, StoreUnreachable) and not self._lost:
            self._lost = True
            self.connection.close()

    def close(self) -> None:
        """Tell the database that this was all, and hang up."""
        try:
            if not self._lost:
                self._database.finish(self.connection)
        except SQLAlchemyError as error:
            _log.warning("%s", self.explain(error))
        self.connection.close()
        self._engine.dispose()

    def explain(self, error: BaseException) -> StoreError:
        """The store's word for what went wrong."""
        if isinstance(error, StoreError):
            return error
        if isinstance(error, DBAPIError) and error.orig is not None:
            return self._database.explain(error.orig)
        return StoreRefused(f"{self._database.name}: not stored: {error}")
