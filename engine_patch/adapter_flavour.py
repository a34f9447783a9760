"""What the drafter does in an off round: all of draft-extend, its keys and values, or nothing.

``adapter_keep`` is the second of these; whether it writes what all of draft-extend would is tried
at start-up and compared in the first off round.  It may come some rounds late (``adapter_owed``);
what is owed is stored before anything else that the drafter does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_patch import (
    adapter_decode,
    adapter_keep,
    adapter_relay,
    adapter_sglang,
    adapter_tiers,
)
from engine_patch.adapter_off import Off
from engine_patch.adapter_owed import Rows
from engine_patch.contract_words import OffFlavour


def extend(
    original: Callable[..., Any], draft_worker: Any, batch: Any, result: Any, **kwargs: Any
) -> Any:
    """Around ``EagleDraftWorker._draft_extend_for_decode``: all of it, or what the flavour asks."""
    tiers = adapter_tiers.controller()
    flavour = None if tiers is None else tiers.round.flavour
    if tiers is None:
        return original(draft_worker, batch, result, **kwargs)
    if flavour in (None, OffFlavour.WARM) or batch.forward_mode.is_idle():
        adapter_keep.pay(draft_worker)
        return adapter_relay.extend(original, tiers, draft_worker, batch, result, **kwargs)
    off = tiers.off
    if flavour is OffFlavour.KEEP and off.needs_probe():
        rows = adapter_keep.rows_of(batch, result)
        adapter_relay.extend(original, tiers, draft_worker, batch, result, **kwargs)
        _probe(off, draft_worker, rows)
        return None
    if flavour is OffFlavour.KEEP:
        adapter_keep.owe(off, draft_worker, batch, result)
    else:
        adapter_keep.pay(draft_worker)
    if adapter_decode.relays_candidates(batch, result):
        tiers.worker._stub_skipped_draft_extend(batch, result)
    adapter_sglang.hand_over_read_done(
        tiers.worker.target_worker.model_runner, draft_worker.draft_runner
    )
    return None


def try_keep(off: Off, draft_worker: Any) -> None:
    """At start-up: keep one made-up token in a slot, and see what attention was given.

    Shows that this drafter can be stopped at its attention and that its keys and values arrive in
    the pool; whether they are those of a whole draft-extend is seen in the first off round.
    """
    if off.attention() is None:
        return
    problem = ""
    try:
        problem = _stored_otherwise(off, draft_worker)
    except Exception as error:  # noqa: BLE001  # a drafter we do not know: warm does for it
        problem = f"keep cannot run this drafter: {error!r}"
    off.tried(problem)


def _stored_otherwise(off: Off, draft_worker: Any) -> str:
    """What differs between the pool and what attention was given, "" if nothing does."""
    import torch
    from sglang.srt.speculative.eagle_utils import get_draft_input_from_target_hidden_dim

    runner, attention = draft_worker.draft_runner, off.attention()
    pool, device = runner.token_to_kv_pool, draft_worker.device
    # The first slot that a request can have: SGLang's CUDA kernel stores nothing in padding's.
    at = torch.full((1,), int(pool.page_size), dtype=torch.int64, device=device)
    one = torch.ones_like(at)
    with torch.inference_mode():
        hidden = torch.full(
            (1, get_draft_input_from_target_hidden_dim(runner)),
            0.1,
            dtype=runner.model_config.dtype,
            device=device,
        )
        buffers = (
            pool.get_key_buffer(attention.layer_id),
            pool.get_value_buffer(attention.layer_id),
        )
        before = [buffer[at].clone() for buffer in buffers]
        given: list[Any] = []
        try:
            for buffer in buffers:
                buffer[at] = 0
            adapter_keep.keep(off, draft_worker, Rows(one, one, at, hidden), given)
            kept = [buffer[at].float().flatten() for buffer in buffers]
        finally:
            for buffer, values in zip(buffers, before, strict=True):
                buffer[at] = values
        if not given:
            return "this drafter ends without asking its attention"
        if not all(bool(values.isfinite().all()) and bool(values.any()) for values in kept):
            return "nothing arrives in the drafter's KV when it is stopped at its attention"
        if any(values is None for values in given):
            return ""  # a fused kernel has written them
        wanted = [values.float().flatten() for values in given]
        gaps = [
            float((values - right).abs().max())
            for values, right in zip(kept, wanted, strict=True)
            if values.shape == right.shape
        ]
        size = max(float(values.abs().max()) for values in wanted)
    same = len(gaps) == len(kept) and max(gaps) <= off.most(size)
    # With scales the pool holds other numbers; the first off round compares those.
    if attention.k_scale is None and not same:
        return "the drafter's KV is not what its attention was given"
    return ""


def _probe(off: Off, draft_worker: Any, rows: Rows) -> None:
    """Compare keep with the whole draft-extend, which has just run; leave the latter's values."""
    layer, pool = off.attention().layer_id, draft_worker.draft_runner.token_to_kv_pool
    at, gap, size, problem = rows.slots, 0.0, 0.0, ""
    try:
        buffers = (pool.get_key_buffer(layer), pool.get_value_buffer(layer))
        whole = [buffer[at].clone() for buffer in buffers]
        for buffer in buffers:
            buffer[at] = 0
        try:
            adapter_keep.keep(off, draft_worker, rows)
            gap = max(
                float((buffer[at].float() - values.float()).abs().max())
                for buffer, values in zip(buffers, whole, strict=True)
            )
            size = max(float(values.float().abs().max()) for values in whole)
        finally:
            for buffer, values in zip(buffers, whole, strict=True):
                buffer[at] = values
    except Exception as error:  # noqa: BLE001  # a drafter we do not know: warm does for it
        problem = f"keep cannot run this drafter: {error!r}"
    off.probed(gap, size, problem)
