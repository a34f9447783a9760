"""The drafter's keys and values of an off round, without the rest of its draft-extend.

Those of a one-layer drafter depend on the token and the target's hidden state, not on attention; so
*keep* calls the drafter's own forward and stops it where attention begins, after storing them.

At 1 to 64 requests it is two matrix products, each bound by its weights, and a dozen small kernels
(docs/gpu-results.md).  So it leaves out the queries, which nobody reads, and projects the hidden
states while the next token is sampled, which on a GPU keeps few of its processors busy.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from engine_patch.adapter_off import Off

_PROJECTED = "specdeck_projected"
"""Attribute put on a batch's result: the hidden states as the drafter's layer takes them."""


class _StoredError(Exception):
    """Ends the drafter's forward once its keys and values are stored."""


def keep(
    off: Off,
    draft_worker: Any,
    batch: Any,
    result: Any,
    hidden_states: Any,
    given: list[Any] | None = None,
) -> None:
    """Write the drafter's keys and values for this round's token, and stop there.

    Args:
        hidden_states: the target's, or what ``projected`` made of them.
        given: takes what attention was given, keys and values.
    """
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    runner, attention = draft_worker.draft_runner, off.attention()
    where = KVWriteLoc(batch.out_cache_loc)

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
        out_cache_loc=batch.out_cache_loc,
        mm_input_embeds=None,
        contains_mm_inputs=lambda: False,
        spec_info=SimpleNamespace(hidden_states=hidden_states),
    )
    attention.forward = store
    try:
        with contextlib.suppress(_StoredError), _without_queries(runner.model, attention):
            runner.model.model(result.next_token_ids.long(), batch.seq_lens.long(), seen)
    finally:
        del attention.forward


@contextlib.contextmanager
def _without_queries(model: Any, attention: Any) -> Iterator[None]:
    """While a drafter runs up to its attention: compute keys and values alone.

    What stands in the queries' place is never read.  A projection that is not a plain matrix
    product (quantized, packed for a processor) is left as it is.
    """
    owner = next((m for m in model.modules() if getattr(m, "attn", None) is attention), None)
    layer = getattr(owner, "qkv_proj", None)
    queries = getattr(owner, "q_size", 0)
    if layer is None:
        yield
        return
    plain = (
        type(layer.quant_method).__name__ == "UnquantizedLinearMethod"
        and layer.bias is None
        and not getattr(layer, "use_intel_amx_backend", False)
        and layer.weight.shape[0] == queries + 2 * getattr(owner, "kv_size", 0)
    )
    if not plain:
        yield
        return
    import torch

    weight = layer.weight[queries:].t()

    def keys_and_values(x: Any, *_: Any, **__: Any) -> Any:
        rows = x.new_empty((x.shape[0], layer.weight.shape[0]))
        torch.mm(x, weight, out=rows[:, queries:])
        return rows, None

    layer.forward = keys_and_values
    try:
        yield
    finally:
        del layer.forward


def projected(draft_worker: Any, hidden: Any) -> Any:
    """The target's hidden states as the drafter's layer takes them.

    EAGLE-3 drafters project several layers' states to one; given the result, their forward does
    not project again.  Others get what they were given.
    """
    fc = _projection(draft_worker, hidden)
    return hidden if fc is None else fc(hidden)


def _projection(draft_worker: Any, hidden: Any) -> Any:
    model = draft_worker.draft_runner.model.model
    fc = getattr(model, "fc", None)
    normed = (getattr(model, name, None) for name in ("input_norm", "fc_norm"))
    if fc is None or any(norm is not None for norm in normed):
        return None
    fits = getattr(fc, "in_features", 0) == hidden.shape[-1] != getattr(fc, "out_features", 0)
    return fc if fits else None


@functools.cache
def _beside(device: Any) -> Any:
    """The stream for work beside the forward's."""
    import torch

    return torch.cuda.Stream(device)


@contextlib.contextmanager
def projecting(draft_worker: Any, hidden: Any) -> Iterator[list[Any]]:
    """While the next token is sampled: project the hidden states beside it, on a GPU.

    Yields a list that holds the projected states afterwards, nothing if there is no projection.
    """
    done: list[Any] = []
    fc = _projection(draft_worker, hidden)
    if fc is None or not hidden.is_cuda:
        yield done
        if fc is not None:
            done.append(fc(hidden))
        return
    import torch

    device = hidden.device
    here, beside = torch.cuda.current_stream(device), _beside(device)
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        states = fc(hidden)
    yield done
    here.wait_stream(beside)
    # Memory of the other stream, read on this one.
    states.record_stream(here)
    done.append(states)


def put(result: Any, done: list[Any]) -> None:
    """Lay projected states beside a batch's result."""
    if done:
        setattr(result, _PROJECTED, done[0])


def hidden_states(result: Any) -> Any:
    """What ``keep`` is given for a batch: projected states if there are any."""
    states = getattr(result, _PROJECTED, None)
    return result.logits_output.hidden_states if states is None else states
