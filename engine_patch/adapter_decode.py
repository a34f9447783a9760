"""An off round as the decode step of a plain server: one forward, one sample, one token.

SGLang's verify step is right for off too, and slower than a plain server's step: it builds a tree
of one node, fills a mask for the longest context, accepts the only token, and relays candidates
that nobody drafts from (3-6 % of a round on an H200, docs/gpu-results.md).  None of that is needed
where the drafter keeps its keys and values or does nothing.  Rounds that need what verify leaves
behind (a whole draft-extend, grammars, log-probabilities, watermarks) still go through it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from engine_patch import adapter_sglang, adapter_tiers
from engine_patch.contract_words import OffFlavour, OffKind

_PLAIN = "specdeck_plain"
"""Attribute put on a verify input whose round is a plain decode step."""


def forward_batch(
    tokens: Any, req_to_token_pool: Any, batch: Any, runner: Any
) -> tuple[Any, bool, Any]:
    """The ordinary decode batch of an off round.

    Args:
        tokens: the last token of each request, shape (requests,).

    Returns:
        SGLang's forward batch, whether it replays a graph, and the lengths after this round.
    """
    from sglang.srt.model_executor.forward_batch_info import (
        CaptureHiddenMode,
        ForwardBatch,
        ForwardMode,
    )

    # The new token's slot is the first of the request's reserve, the one verify would use.
    where = batch.seq_lens
    batch.input_ids = tokens
    batch.out_cache_loc = req_to_token_pool.req_to_token[batch.req_pool_indices, where].to(
        where.dtype
    )
    batch.forward_mode = ForwardMode.DECODE
    # Speculation keeps seq_lens without this round's token, decode counts it; the batch itself
    # must keep the shorter lengths, which the rest of the round is computed from.
    seen = copy.copy(batch)
    seen.spec_info = None
    seen.seq_lens = grown = where + 1
    seen.seq_lens_sum = None
    if batch.seq_lens_cpu is not None:
        seen.seq_lens_cpu = batch.seq_lens_cpu + 1
    forward = ForwardBatch.init_new(
        seen,
        runner,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        return_hidden_states_before_norm=False,
    )
    graphs = runner.decode_cuda_graph_runner
    return forward, bool(graphs and graphs.can_run_graph(forward)), grown


def prepare(
    original: Callable[..., Any],
    verify_input: Any,
    req_to_token_pool: Any,
    batch: Any,
    target_worker: Any,
) -> Any:
    """Around ``eagle_prepare_for_verify``: verify of an off round forwards an ordinary batch."""
    tiers = adapter_tiers.controller()
    if tiers is None or verify_input.spec_steps or batch.forward_mode.is_idle():
        return original(verify_input, req_to_token_pool, batch, target_worker)
    runner = target_worker.model_runner
    # Only graph rounds set the event; an older one would let the scheduler write too early.
    adapter_sglang.clear_read_done(runner)
    if tiers.off.kind is not OffKind.PLAIN_PATH:
        return original(verify_input, req_to_token_pool, batch, target_worker)
    forward, graph, _ = forward_batch(verify_input.draft_token, req_to_token_pool, batch, runner)
    return forward, graph


def one_node(original: Callable[..., Any], worker: Any, batch: Any) -> Any:
    """Around ``EAGLEWorkerV2._build_trivial_verify_input``: no tree for a plain decode step."""
    if not _plain(batch):
        return original(worker, batch)
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
    from sglang.srt.speculative.eagle_info import EagleVerifyInput

    given = EagleVerifyInput(
        draft_token=batch.spec_info.bonus_tokens,
        custom_mask=None,
        positions=None,
        retrieve_index=None,
        retrieve_next_token=None,
        retrieve_next_sibling=None,
        retrieve_cum_len=None,
        spec_steps=0,
        topk=worker.topk,
        draft_token_num=1,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        seq_lens_sum=None,
        seq_lens_cpu=None,
    )
    setattr(given, _PLAIN, True)
    return given


def _plain(batch: Any) -> bool:
    """Whether this off round needs nothing of what verify leaves behind."""
    tiers = adapter_tiers.controller()
    if tiers is None or tiers.off.kind is not OffKind.PLAIN_PATH or batch.forward_mode.is_idle():
        return False
    flavour = tiers.round.flavour
    if flavour is OffFlavour.KEEP:
        if tiers.off.needs_probe():
            return False
    elif flavour is not OffFlavour.COLD:
        return False
    marked = getattr(batch.sampling_info, "has_watermark_candidates", False)
    return not (batch.has_grammar or batch.return_logprob or marked)


def verify(original: Callable[..., Any], worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``EAGLEWorkerV2.verify``: forward and sample, as a plain server does."""
    given = batch.spec_info
    if not getattr(given, _PLAIN, False):
        return original(worker, batch, *args, **kwargs)
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.speculative.eagle_info import EagleDraftInput

    target = worker.target_worker
    adapter_sglang.clear_read_done(target.model_runner)
    forward, graph, grown = forward_batch(
        given.draft_token, worker.req_to_token_pool, batch, target.model_runner
    )
    output = target.forward_batch_generation(batch=None, forward_batch=forward, is_verify=True)
    tokens = target.model_runner.sample(output.logits_output, forward)
    return GenerationBatchResult(
        logits_output=output.logits_output,
        next_token_ids=tokens,
        can_run_cuda_graph=graph,
        speculative_num_draft_tokens=1,
        next_draft_input=EagleDraftInput(bonus_tokens=tokens),
        accept_lens=_one_each(len(tokens), tokens.device),
        new_seq_lens=grown,
        routed_experts_output=output.routed_experts_output,
        indexer_topk_output=output.indexer_topk_output,
        extra_keep_alive_refs=[forward],
    )


@functools.cache
def _one_each(requests: int, device: Any) -> Any:
    """The number of tokens that a decode step yields for each request; read, never written."""
    import torch

    return torch.ones(requests, dtype=torch.int32, device=device)


def relays_candidates(batch: Any, result: Any) -> bool:
    """Whether a round without draft-extend must still hand on candidates, of whatever value.

    The overlap loop relays through buffers of its own, which ``stash`` then leaves as they are; the
    other loop hands on the draft input itself, which has to have its shape.
    """
    plain = getattr(batch.spec_info, _PLAIN, False)
    return not (plain and batch.enable_overlap and result.next_draft_input.topk_p is None)


def stash(original: Callable[..., Any], future: Any, future_indices: Any, payload: Any) -> Any:
    """Around ``FutureMap.stash``: the token alone, where there are no candidates to relay."""
    needs = getattr(future, "need_topk", False), getattr(future, "need_hidden_states", False)
    if payload.topk_p is not None or not needs[0]:
        return original(future, future_indices, payload)
    # SGLang 0.5.22 and later pass over what is missing; before, they would fail.
    future.need_topk = future.need_hidden_states = False
    try:
        return original(future, future_indices, payload)
    finally:
        future.need_topk, future.need_hidden_states = needs
