"""Hooks that are in force while a tier is built: its topk, its graph sizes, its logits rows.

Attention backends and graph runners read topk from the worker, the draft worker and SGLang's
context; 0.5.17 reads the server arguments as well, and sizes two things by the launch tier that
belong to the tier at hand (the width of the draft-extend graph, the rows of the shared logits
buffer).  Both versions compute the graph sizes of a tier and then capture those of the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from engine_patch import adapter_launch, adapter_room, adapter_sglang, adapter_tiers
from engine_patch.tier import TierName, TierShape


@contextlib.contextmanager
def scope(
    original: Callable[..., Any], worker: Any, steps: int, tokens: int, *args: Any, **kwargs: Any
) -> Iterator[None]:
    """Around ``EAGLEWorkerV2._override_worker_state``: add topk to what it overrides.

    Both ends of the original scope rebuild the chain buffers, which check topk against the step
    count; so topk changes just outside it on the way in, and just inside it on the way out.
    """
    tiers = adapter_tiers.controller()
    if tiers is None or tiers.building is None:
        with original(worker, steps, tokens, *args, **kwargs):
            yield
        return
    topk = TierShape.parse(tiers.building).topk

    def put(value: int) -> None:
        worker.topk = worker._draft_worker.topk = value
        adapter_sglang.set_context_topk(value)

    arguments = (
        adapter_sglang.shape_in_arguments(worker, steps, topk, tokens)
        if adapter_sglang.spec_reads_server_args()
        else contextlib.nullcontext()
    )
    put(topk)
    with original(worker, steps, tokens, *args, **kwargs), arguments:
        try:
            yield
        finally:
            put(tiers.topk_max)


def give_standalone_a_controller(_: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
    """After ``StandaloneWorkerV2.__init__``, which leaves its controller out (SGLang: a TODO).

    All else it inherits: building and applying a tier, and asking for one at each decode batch.
    """
    del args, kwargs
    if adapter_launch.in_force() is not None:
        worker.adaptive_controller = adapter_tiers.TierController(worker)


_counting: TierName | None = None
"""The tier whose logits rows are being counted."""


def _limit() -> int | None:
    plan = adapter_launch.in_force()
    if plan is None:
        return None
    tiers = adapter_tiers.controller()
    building = tiers.building if tiers is not None else None
    return plan.limits.get(_counting or building or plan.launch)


def capture_sizes(
    original: Callable[..., tuple[list[int], list[int]]], *args: Any, **kwargs: Any
) -> tuple[list[int], list[int]]:
    """Around ``get_batch_sizes_to_capture``: only batches that the tier may serve."""
    capture, compiled = original(*args, **kwargs)
    kept = adapter_room.pruned(capture, _limit())
    return kept, [size for size in compiled if size in kept]


def logits_rows(original: Callable[[Any], int], runner: Any) -> int:
    """Around ``ModelRunner.max_decode_logits_rows``: rows for every tier's widest graph."""
    global _counting
    plan = adapter_launch.in_force()
    if plan is None:
        return original(runner)
    from sglang.srt.model_executor.runner import base_cuda_graph_runner as runners

    most = 0
    for shape in plan.shapes:
        _counting = shape.name
        try:
            width = max(
                shape.topk,
                runner.decode_num_tokens_per_req(num_draft_tokens=shape.num_draft_tokens),
            )
            sizes, _ = runners.get_batch_sizes_to_capture(runner, width)
        finally:
            _counting = None
        most = max(most, width * max(sizes))
    return most
