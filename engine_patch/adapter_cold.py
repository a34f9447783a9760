"""Requests that lived through a cold off: the drafter's KV has a hole where their tokens are.

Their output stays right, since the target verifies; their drafts get worse.  The hole would outlive
the request through the prefix cache, so they are kept out of it, and out of accept statistics.  A
prefill writes the drafter's KV anew, so a request that was retracted comes back whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_COLD = "specdeck_cold"
"""Attribute put on a request; holds what SGLang's own flag was before."""
_KEPT_OUT = "skip_radix_cache_insert"


def mark(requests: Sequence[Any]) -> None:
    """A cold round has run for these requests."""
    for request in requests:
        if not hasattr(request, _COLD):
            setattr(request, _COLD, getattr(request, _KEPT_OUT, False))
            setattr(request, _KEPT_OUT, True)


def forget(requests: Sequence[Any]) -> None:
    """These requests are prefilled: their drafter KV becomes whole."""
    for request in requests:
        if hasattr(request, _COLD):
            setattr(request, _KEPT_OUT, getattr(request, _COLD))
            delattr(request, _COLD)


def count(requests: Sequence[Any]) -> int:
    """How many of these requests have a hole."""
    return sum(hasattr(request, _COLD) for request in requests)


def without(accepted: Sequence[int], requests: Sequence[Any]) -> list[int]:
    """Accepted drafts of those requests that have no hole."""
    if len(accepted) != len(requests) or not count(requests):
        return list(accepted)
    return [n for n, request in zip(accepted, requests, strict=True) if not hasattr(request, _COLD)]
