"""What can go wrong with a store.  Each message names the file and what to do about it.

The names say the state of the file, as the exit messages do, hence no ``Error`` suffix.
"""
# ruff: noqa: N818

from __future__ import annotations


class StoreError(Exception):
    """Base of everything the store raises; the text is fit to be shown to a person."""


class StoreNewer(StoreError):
    """The file was written by a newer specdeck.  Nothing was changed."""


class StoreOlder(StoreError):
    """The file has an older schema and was asked for read-only, so it cannot be upgraded."""


class StoreCorrupt(StoreError):
    """The file, or one row of it, cannot be read.  Nothing was deleted."""


class StoreForeign(StoreError):
    """The file is a database of some other program.  Nothing was changed."""


class StoreUnwritable(StoreError):
    """The place cannot be written: no directory, no permission, read-only or full disk."""


class StoreUnreachable(StoreUnwritable):
    """The database server does not answer, or the connection to it was lost."""


class StoreBusy(StoreError):
    """Another process holds the file for writing."""


class StoreOverloaded(StoreError):
    """The queue of waiting writes is full; this write was not recorded."""


class StoreRefused(StoreError):
    """This one record contradicts what is stored or cannot be stored exactly."""


class StoreClosed(StoreError):
    """The store was closed, or opened read-only and asked to write."""
