"""What a tier will take of the GPU's memory, estimated before it is built.  Pure.

SGLang sizes its KV pool before it builds tiers, so a tier lives from the head-room that is left.
The formulas for attention buffers follow the allocations of SGLang's backends (read in 0.5.17 and
0.5.23: ``triton_backend.py``, ``flashinfer_backend.py``, ``flashattention_backend.py``); the graph
term is a fit to six states measured on one H200 with an 8B model (SGLang 0.5.17): about 8 MiB per
captured size, and 8 bytes per logit of the widest graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine_patch.tier import TierShape

MIB = 1024 * 1024
MARGIN = 1024 * MIB
"""Bytes that must stay free beside a tier: SGLang's own scratch lives there."""
_PER_SIZE = 8 * MIB
_PER_LOGIT = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """What the estimate depends on.

    Args:
        backend: SGLang's name of the decode attention backend.
        context: tokens of the longest request.
        vocabulary: entries of the target's vocabulary.
        page_size: tokens per KV page.
        workspace: bytes of FlashInfer's workspace.
    """

    backend: str
    context: int
    vocabulary: int
    page_size: int = 1
    workspace: int = 384 * MIB


def attention_bytes(shape: TierShape, batch: int, setting: Setting) -> int:
    """Index buffers, masks and workspaces of a tier's attention backends.

    Args:
        batch: the largest captured batch.
    """
    steps, topk, tokens = shape.num_steps, shape.topk, shape.num_draft_tokens
    row = batch * setting.context
    # A draft of one step needs no attention: its candidates come from the relay.
    drafts = steps if steps > 1 else 0
    if setting.backend == "triton":
        return 17 * row * tokens + 8 * drafts * row * topk
    if setting.backend == "flashinfer":
        return setting.workspace + 10 * row * tokens + 4 * drafts * row * topk
    if setting.backend == "fa3":
        objects = 2 + max(steps - 1, 0)
        paged = -(-setting.context // setting.page_size) * batch
        tables = 4 * objects * (3 * paged + (2 * row if topk > 1 else 0))
        return tables + (row * tokens if topk > 1 else 0)
    return 0


def graph_bytes(shape: TierShape, batch: int, sizes: int, setting: Setting) -> int:
    """CUDA graphs of a tier: ``sizes`` of them, the widest for ``batch`` requests."""
    rows = batch * shape.num_draft_tokens
    return sizes * _PER_SIZE + rows * setting.vocabulary * _PER_LOGIT if sizes else 0


def estimate(shape: TierShape, batch: int, sizes: int, setting: Setting) -> int:
    """Bytes a tier will take."""
    return attention_bytes(shape, batch, setting) + graph_bytes(shape, batch, sizes, setting)


def too_large(shape: TierShape, needed: int, free: int) -> str:
    """Why a tier cannot be built, "" if it can."""
    if needed + MARGIN <= free:
        return ""
    return (
        f"tier {shape.name} needs about {needed / MIB:,.0f} MiB beside {MARGIN / MIB:,.0f} MiB of "
        f"scratch, {free / MIB:,.0f} MiB are free: lower --mem-fraction-static, or limit its batch "
        f"with SPECDECK_TIER_MAX_BATCH={shape.name}=N; SPECDECK_HEADROOM=ignore builds it anyway"
    )
