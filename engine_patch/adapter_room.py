"""Whether a tier fits: its graph sizes, and the head-room beside the KV pool."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from engine_patch import adapter_sglang, tier_memory
from engine_patch.tier import TierShape

HEADROOM_VARIABLE = "SPECDECK_HEADROOM"
"""``check`` (the default) leaves out tiers that the estimate finds too large; or ``ignore``."""


def headroom() -> str:
    """``check`` or ``ignore``.

    Raises:
        ValueError: the variable holds something else.
    """
    value = os.environ.get(HEADROOM_VARIABLE, "") or "check"
    if value not in ("check", "ignore"):
        raise ValueError(f"{HEADROOM_VARIABLE} is 'check' or 'ignore', not {value!r}")
    return value


def missing(worker: Any, shape: TierShape, sizes: list[int]) -> str:
    """Why a tier does not fit into the head-room; the same answer on all ranks."""
    free = adapter_sglang.free_memory()
    if free is None or headroom() == "ignore":
        return ""
    free = adapter_sglang.least_of_all_ranks(free)
    needed = tier_memory.estimate(shape, max(sizes, default=1), len(sizes), memory_setting(worker))
    return tier_memory.too_large(shape, needed, free)


def pruned(sizes: Iterable[int], limit: int | None) -> list[int]:
    """Graph sizes for batches up to a limit: those below it, and the first that holds it."""
    rising = sorted(set(sizes))
    if limit is None:
        return rising
    return [size for place, size in enumerate(rising) if place == 0 or rising[place - 1] < limit]


def memory_setting(worker: Any) -> tier_memory.Setting:
    """What the estimate of a tier's memory depends on here."""
    runner = worker.target_worker.model_runner
    args = runner.server_args
    config = runner.model_config
    return tier_memory.Setting(
        backend=decode_backend(args) or "",
        context=int(config.context_len),
        vocabulary=int(config.vocab_size),
        page_size=int(adapter_sglang.setting(args, "page_size") or 1),
    )


def decode_backend(args: Any) -> str | None:
    """SGLang's name of the attention backend of decode steps."""
    name = adapter_sglang.setting(args, "decode_attention_backend")
    name = name or adapter_sglang.setting(args, "attention_backend")
    return None if name is None else str(name)
