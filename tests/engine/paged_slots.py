"""Lets the CPU engine speculate with pages of several KV slots.

SGLang looks up a request's last slot with a Triton kernel unless its attention backend is one of
two names, and the CPU's is neither; the torch version beside it does the same.  A plugin of the
tests' own takes that one.  Nothing else of paging is changed.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine import own_plugin

NAME = "paged_slots"

_PLUGIN = """
def register():
    import sys

    if "sglang.srt.managers.scheduler" not in sys.modules:
        return
    from sglang.srt.mem_cache import allocation

    allocation.get_last_loc_triton = allocation.get_last_loc_torch
"""


def install(folder: Path) -> Path:
    """Lay the plugin out; returns the folder for the search path."""
    return own_plugin.install(folder, NAME, _PLUGIN)
