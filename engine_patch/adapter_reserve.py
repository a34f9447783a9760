"""KV slots held back per running request: for what runs and what is announced, never less.

SGLang reserves ``2 * alloc_len`` slots for each request before every decode step: once for the
batch whose results are still on their way, once for the next.  Its own formula mixes the active
step count with one topk, which is too small under switching, and too small fails silently: drafts
are written to slots of somebody else.  Here each tier's length comes from that
formula, evaluated with the tier's own shape.

``SPECDECK_RESERVE=next`` (the default) reserves for the active and the announced tier, so that a
smaller tier gives slots back; ``all`` reserves for the widest tier, as SGLang does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from engine_patch import adapter_launch, adapter_tiers
from engine_patch.tier import TierName, TierShape
from engine_patch.tier_plan import Plan

VARIABLE = "SPECDECK_RESERVE"
NEXT = "next"
ALL = "all"


def wanted() -> str:
    """``next`` or ``all``.

    Raises:
        ValueError: the variable holds something else.
    """
    value = os.environ.get(VARIABLE, "") or NEXT
    if value not in (NEXT, ALL):
        raise ValueError(f"{VARIABLE} is 'next' or 'all', not {value!r}")
    return value


class _Arguments:
    """Server arguments in which the speculative shape is a tier's (0.5.17)."""

    def __init__(self, server_args: Any, shape: TierShape) -> None:
        self._server_args = server_args
        self.speculative_num_steps = shape.num_steps
        self.speculative_eagle_topk = shape.topk
        self.speculative_num_draft_tokens = shape.num_draft_tokens
        self.max_speculative_num_draft_tokens = shape.num_draft_tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server_args, name)


def _by_tier(
    original: Callable[..., int], plan: Plan, args: tuple[Any, ...]
) -> dict[TierName, int]:
    if adapter_tiers.reads_server_args(original):
        from sglang.srt.runtime_context import get_server_args

        given = args[0] if args and args[0] is not None else get_server_args()
        return {
            name: int(original(_Arguments(given, shape)))
            for name, shape in zip(plan.tiers, plan.shapes, strict=True)
        }
    from sglang.srt.runtime_context import get_spec

    lengths = {}
    for name, shape in zip(plan.tiers, plan.shapes, strict=True):
        with get_spec().override(
            speculative_num_steps=shape.num_steps,
            speculative_eagle_topk=shape.topk,
            speculative_num_draft_tokens=shape.num_draft_tokens,
            max_speculative_num_draft_tokens=shape.num_draft_tokens,
        ):
            lengths[name] = int(original())
    return lengths


_lengths: dict[TierName, int] = {}


def alloc_len(original: Callable[..., int], *args: Any, **kwargs: Any) -> int:
    """Around ``get_alloc_len_per_decode``: asked for before every decode step, and for sizing."""
    plan = adapter_launch.in_force()
    if plan is None:
        return original(*args, **kwargs)
    if not _lengths:
        _lengths.update(_by_tier(original, plan, args or tuple(kwargs.values())))
    tiers = adapter_tiers.controller()
    if tiers is None or not tiers.ready or tiers.reserve != NEXT:
        return max(_lengths.values())
    return max(_lengths[tiers.active], _lengths[tiers.announced])


def length_of(tier: TierName) -> int:
    """Slots one request may need in one step of a tier; 0 before SGLang asked the first time."""
    return _lengths.get(tier, 0)


def row_headroom(original: Callable[..., int], *args: Any, **kwargs: Any) -> int:
    """Around ``get_req_to_token_extra_context_len``: a row holds the widest tier's reserve."""
    room = original(*args, **kwargs)
    if adapter_launch.in_force() is None:
        return room
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode

    return max(room, int(get_alloc_reserve_per_decode(*args, **kwargs)))


def reserved_tokens(original: Callable[..., int], *args: Any, **kwargs: Any) -> int:
    """Around ``compute_num_reserved_tokens``: the length limit of requests, in the HTTP process."""
    tokens = original(*args, **kwargs)
    plan = adapter_launch.in_force()
    if plan is None or tokens == 0:
        return tokens
    return max(tokens, *(max(s.num_steps * s.topk, s.num_draft_tokens) for s in plan.shapes))
