"""The version of this installation."""

from __future__ import annotations

from importlib import metadata

try:
    VERSION = metadata.version("specdeck")
except metadata.PackageNotFoundError:
    VERSION = "unknown"
