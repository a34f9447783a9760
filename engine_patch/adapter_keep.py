"""The drafter's keys and values of an off round, without the rest of its draft-extend.

Those of a one-layer drafter depend on the token and the target's hidden state, not on attention; so
*keep* calls the drafter's own forward and stops it where attention begins, after storing them.

It is two matrix products and ten small kernels, and up to some 200 rows the former are bound by
their weights (docs/gpu-results.md).  So it leaves out the queries, which nobody reads, and stores
the rows of several rounds together (``adapter_owed``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from engine_patch import adapter_tiers
from engine_patch.adapter_off import Off
from engine_patch.adapter_owed import Rows


class _StoredError(Exception):
    """Ends the drafter's forward once its keys and values are stored."""


def rows_of(batch: Any, result: Any) -> Rows:
    """What an off round gives the drafter: one token of each request."""
    return Rows(
        result.next_token_ids,
        batch.seq_lens,
        batch.out_cache_loc,
        result.logits_output.hidden_states,
    )


def owe(off: Off, draft_worker: Any, batch: Any, result: Any) -> None:
    """Keep the keys and values of an off round, now or together with those of later rounds."""
    rows, requests = rows_of(batch, result), [request.rid for request in batch.reqs]
    if off.owed.others(requests):
        pay(draft_worker)
    if not off.owed.waits(len(requests)):
        keep(off, draft_worker, rows)
    elif off.owed.add(requests, rows):
        pay(draft_worker)


def pay(draft_worker: Any) -> None:
    """Store what off rounds still owe: before the drafter reads or writes anything else."""
    tiers = adapter_tiers.controller()
    if tiers is None or tiers.off is None:
        return
    rows = tiers.off.owed.settle()
    if rows is not None:
        keep(tiers.off, draft_worker, rows)


def keep(off: Off, draft_worker: Any, rows: Rows, given: list[Any] | None = None) -> None:
    """Write the drafter's keys and values of some rows, and stop there.

    Args:
        given: takes what attention was given, keys and values.
    """
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    runner, attention = draft_worker.draft_runner, off.attention()
    where = KVWriteLoc(rows.slots)

    def store(
        q: Any, k: Any, v: Any, forward_batch: Any, save_kv_cache: bool = True, **_: Any
    ) -> Any:
        del q, forward_batch
        if given is not None:
            given.extend((k, v))
        if save_kv_cache:  # else a fused kernel has written them already
            scales = (attention.k_scale, attention.v_scale) if attention.k_scale is not None else ()
            runner.token_to_kv_pool.set_kv_buffer(
                attention,
                where,
                k.view(-1, attention.tp_k_head_num, attention.qk_head_dim),
                v.view(-1, attention.tp_v_head_num, attention.v_head_dim),
                *scales,
            )
        raise _StoredError

    seen = SimpleNamespace(
        forward_mode=ForwardMode.DRAFT_EXTEND_V2,
        out_cache_loc=rows.slots,
        mm_input_embeds=None,
        contains_mm_inputs=lambda: False,
        spec_info=SimpleNamespace(hidden_states=rows.hidden_states),
    )
    attention.forward = store
    try:
        with contextlib.suppress(_StoredError), _lighter(runner.model, attention):
            runner.model.model(rows.tokens.long(), rows.positions.long(), seen)
    finally:
        del attention.forward


@contextlib.contextmanager
def _instead(layer: Any, forward: Any) -> Iterator[None]:
    """While a layer computes something else; None leaves it as it is."""
    if forward is None:
        yield
        return
    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward


@contextlib.contextmanager
def _lighter(model: Any, attention: Any) -> Iterator[None]:
    """While a drafter runs up to its attention: without what nobody reads, in fewer microseconds.

    Layers that are not plain (quantized, packed for a processor, split over ranks) are left alone.
    """
    owner = _owner(model, attention)
    projection = getattr(owner, "qkv_proj", None)
    embedding = getattr(model.model, "embed_tokens", None)
    with (
        _instead(projection, _keys_and_values(owner, projection)),
        _instead(embedding, _rows(embedding)),
    ):
        yield


@functools.cache
def _owner(model: Any, attention: Any) -> Any:
    """The module that calls an attention layer; looked for once, not in every round."""
    return next((m for m in model.modules() if getattr(m, "attn", None) is attention), None)


def _keys_and_values(owner: Any, layer: Any) -> Any:
    """A projection without queries; what stands in their place is not written."""
    queries = getattr(owner, "q_size", 0)
    method = type(getattr(layer, "quant_method", None)).__name__
    if method != "UnquantizedLinearMethod" or getattr(layer, "use_intel_amx_backend", False):
        return None
    width = layer.weight.shape[0]
    if layer.bias is not None or width != queries + 2 * getattr(owner, "kv_size", 0):
        return None
    import torch

    weight = layer.weight[queries:].t()

    def forward(x: Any, *_: Any, **__: Any) -> Any:
        out = x.new_empty((x.shape[0], width))
        torch.mm(x, weight, out=out[:, queries:])
        return out, None

    return forward


def _rows(layer: Any) -> Any:
    """Rows by index: PyTorch's embedding kernel takes 13 us for 16 rows on an H200, this one 3."""
    method = type(getattr(layer, "quant_method", None)).__name__
    if type(layer).__name__ != "VocabParallelEmbedding" or method != "UnquantizedEmbeddingMethod":
        return None
    if layer.tp_size != 1:
        return None
    weight = layer.weight
    return lambda ids, *_, **__: weight[ids]
