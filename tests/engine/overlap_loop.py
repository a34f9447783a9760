"""Lets the CPU engine run SGLang's overlap loop, which it turns off for speculation on a CPU.

The overlap loop is what runs on GPUs: a batch is launched before the result of the one before it
is processed.  SGLang switches it off on a CPU in one function, needs one Triton kernel and, before
0.5.22, tells streams that a CPU does not have who uses a tensor; a plugin of the test's own puts
that right.  Streams are not exercised, the order of events is.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine import own_plugin

NAME = "overlap_loop"

_PLUGIN = """
import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType


def gather(index, *buffers):
    return tuple(buffer if buffer is None else buffer[index] for buffer in buffers)


def register():
    torch.Tensor.record_stream = lambda tensor, stream: None
    for path, function in (
        ("srt.arg_groups.speculative_hook._disable_overlap_schedule_for_cpu", lambda args: None),
        ("kernels.ops.speculative.gather_spec_extras.gather_spec_extras", gather),
    ):
        HookRegistry.register("sglang." + path, function, HookType.REPLACE)
"""


def install(folder: Path) -> Path:
    """Lay the plugin out as an installed distribution; returns the folder for the search path."""
    return own_plugin.install(folder, NAME, _PLUGIN)
