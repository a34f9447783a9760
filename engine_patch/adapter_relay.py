"""What travels from one batch to the next has the width of the widest tier, whatever runs.

SGLang keeps, per request, the drafter's ``topk`` best candidates for the next draft, and sizes the
buffers that carry them across the overlap loop from the first payload.  So every payload has the
largest topk of all tiers, and a tier's draft takes the first columns of what arrives: the
candidates are sorted, so that is exactly what a server launched with that tier would have kept.

A round looks for as many candidates as the next one may draft from, and fills the rest up: the four
best of a vocabulary take the GPU some 0.1 ms more than the best (docs/gpu-results.md), which chains
would pay in every round for a tree that does not run.  The controller lets no tier draft from
what is filled up.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

from engine_patch import adapter_keep, adapter_tiers


@contextlib.contextmanager
def width(worker: Any, candidates: int) -> Iterator[None]:
    """Let a worker produce that many candidates per request."""
    before = worker.topk
    worker.topk = candidates
    try:
        yield
    finally:
        worker.topk = before


@contextlib.contextmanager
def full_width(worker: Any) -> Iterator[None]:
    """Let a worker produce candidates of the full width."""
    tiers = adapter_tiers.controller()
    with width(worker, worker.topk if tiers is None else tiers.topk_max):
        yield


def extend(
    original: Callable[..., Any],
    tiers: adapter_tiers.TierController,
    draft_worker: Any,
    batch: Any,
    result: Any,
    **kwargs: Any,
) -> Any:
    """A round's whole draft-extend, with the candidates that the next round may draft from."""
    with width(draft_worker, tiers.relayed):
        answer = original(draft_worker, batch, result, **kwargs)
    relayed = result.next_draft_input
    relayed.topk_p = filled_up(relayed.topk_p, tiers.topk_max)
    relayed.topk_index = filled_up(relayed.topk_index, tiers.topk_max)
    return answer


def filled_up(candidates: Any, wanted: int) -> Any:
    """Candidates of shape (requests, found) as (requests, wanted), the best one again behind them.

    A view where one was found, so that it costs the GPU nothing.
    """
    missing = wanted - candidates.shape[1]
    if missing <= 0:
        return candidates
    best = candidates[:, :1]
    if candidates.shape[1] == 1:
        return best.expand(-1, wanted)
    import torch

    return torch.cat([candidates, best.expand(-1, missing)], dim=1)


def prefill(original: Callable[..., Any], draft_worker: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``EagleDraftWorker._draft_extend_for_prefill``."""
    adapter_keep.pay(draft_worker)
    with full_width(draft_worker):
        return original(draft_worker, *args, **kwargs)


def stub(original: Callable[..., Any], worker: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``EAGLEWorkerV2._stub_skipped_draft_extend``."""
    with full_width(worker):
        return original(worker, *args, **kwargs)


def idle_input(original: Callable[..., Any], cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``EagleDraftInput.create_idle_input``: idle stubs are merged with real inputs."""
    tiers = adapter_tiers.controller()
    if tiers is not None and "topk" in kwargs:
        kwargs["topk"] = tiers.topk_max
    return original(cls, *args, **kwargs)


def draft(
    original: Callable[..., Any], draft_worker: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    """Around ``EagleDraftWorker.draft``: the active tier's share of the relayed candidates."""
    adapter_keep.pay(draft_worker)
    relayed = batch.spec_info
    candidates = getattr(relayed, "topk_p", None)
    if candidates is not None and candidates.shape[1] > draft_worker.topk:
        # A copy: the scheduler may still use what was relayed.
        narrow = copy.copy(relayed)
        narrow.topk_p = candidates[:, : draft_worker.topk].contiguous()
        narrow.topk_index = relayed.topk_index[:, : draft_worker.topk].contiguous()
        batch.spec_info = narrow
    return original(draft_worker, batch, *args, **kwargs)
