"""What a rank is: its place, its settings, the tiers SGLang built.  Read once, when it is complete.

Settings are read through SGLang's runtime context where it has one (0.5.23), else from its server
arguments (0.5.17).
"""

from __future__ import annotations

import os
from typing import Any

from engine_patch.adapter_reserve import NEXT
from engine_patch.adapter_room import decode_backend
from engine_patch.adapter_sglang import setting
from engine_patch.adapter_tiers import TierController, off_kind_of
from engine_patch.contract import Identity, TierInfo
from engine_patch.published import RankFacts
from engine_patch.tier import OFF, TierName, TierShape


def reserve_per_request() -> int:
    """KV slots SGLang holds back per running request at this moment."""
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode

    return int(get_alloc_reserve_per_decode())


def _number(source: Any, *names: str, default: int) -> int:
    for name in names:
        value = getattr(source, name, None)
        if value is not None:
            return int(value)
    return default


def facts_of(scheduler: Any, mine: TierController | None) -> RankFacts:
    """Read a complete scheduler."""
    from sglang.srt.runtime_context import get_parallel

    parallel = getattr(scheduler, "ps", None) or get_parallel()
    args = scheduler.server_args
    # With DP attention the TP ranks are divided among the replicas.
    divided = bool(setting(args, "enable_dp_attention"))
    tp = ("attn_tp_rank", "tp_rank") if divided else ("tp_rank",)
    tp_sizes = ("attn_tp_size", "tp_size") if divided else ("tp_size",)
    pp_size = _number(parallel, "pp_size", default=1)
    page_size = _number(scheduler, "page_size", default=1)
    launch = _launch_tier(args) if mine is None else mine.launch
    off = mine.off if mine is not None and OFF in mine.states else None
    identity = Identity(
        model=str(setting(args, "served_model_name") or setting(args, "model_path") or "unknown"),
        draft_model=setting(args, "speculative_draft_model_path"),
        algorithm=setting(args, "speculative_algorithm"),
        dtype=setting(args, "dtype"),
        gpu=_device_name(scheduler),
        gpu_count=_number(parallel, "tp_size", default=1)
        * pp_size
        * (1 if divided else _number(parallel, "dp_size", default=1)),
        tp_size=_number(parallel, *tp_sizes, default=1),
        dp_size=_number(parallel, "num_dp_ranks", "dp_size", default=1),
        page_size=page_size,
        attention_backend=_attention_backend(args),
        max_running_requests=_number(scheduler, "max_running_requests", default=0) or None,
        kv_capacity=_number(scheduler, "max_total_num_tokens", default=0) or None,
    )
    return RankFacts(
        pid=os.getpid(),
        dp_rank=_number(parallel, "attn_dp_rank", "dp_rank", default=0)
        if divided
        else _number(parallel, "dp_rank", default=0),
        pp_rank=_number(parallel, "pp_rank", default=0),
        tp_rank=_number(parallel, *tp, default=0),
        pp_size=pp_size,
        identity=identity,
        tiers=_tiers(mine, launch, page_size),
        launch_tier=launch,
        off_flavour=None if off is None else off.flavours[0],
        flavours=() if off is None else off.flavours,
        off_reason="" if off is None else off.reason,
        left_out=() if mine is None else tuple(mine.left_out.items()),
        planned=() if mine is None else mine.planned,
        reserve_follows=mine is not None and mine.reserve == NEXT,
        unsupported=_unsupported(mine, pp_size),
        graphs=not setting(args, "disable_cuda_graph"),
    )


def _unsupported(mine: TierController | None, pp_size: int) -> str:
    if mine is None or not mine.ready:
        return "this server runs one fixed shape"
    if pp_size > 1:
        return (
            "with pipeline parallelism SGLang drafts the next round before its tier is chosen: "
            "start the server with --pp-size 1 to switch"
        )
    return ""


def _tiers(
    mine: TierController | None, launch: TierName | None, page_size: int
) -> tuple[TierInfo, ...]:
    if mine is None:
        return () if launch is None else (_info(launch, page_size, None, None),)
    return tuple(_info(name, page_size, mine, mine.states.get(name)) for name in mine.tiers)


def _info(name: TierName, page_size: int, mine: TierController | None, state: Any) -> TierInfo:
    shape = TierShape.parse(name)
    cost = None if mine is None else mine.costs.get(name)
    return TierInfo(
        name=name,
        num_steps=shape.num_steps,
        topk=shape.topk,
        num_draft_tokens=shape.num_draft_tokens,
        off_kind=off_kind_of(mine) if name == OFF else None,
        alloc_len=shape.alloc_len(page_size),
        memory_bytes=None if cost is None else cost.memory_bytes,
        build_s=None if cost is None else cost.build_s,
        graph_batch_sizes=graph_sizes(state),
        max_batch=None if mine is None else mine.limits.get(name),
    )


def graph_sizes(state: Any) -> tuple[int, ...]:
    """Batch sizes with a captured verify graph of one of SGLang's runtime states."""
    runner = getattr(state, "target_graph_runner", None)
    return tuple(sorted(int(size) for size in getattr(runner, "capture_bs", None) or ()))


def _launch_tier(args: Any) -> TierName | None:
    """The fixed shape of a server that is not adaptive; None if it is no tier of ours."""
    if setting(args, "speculative_algorithm") is None:
        return None
    try:
        return TierShape(
            num_steps=setting(args, "speculative_num_steps"),
            topk=setting(args, "speculative_eagle_topk"),
            num_draft_tokens=setting(args, "speculative_num_draft_tokens"),
        ).name
    except ValueError:  # n-gram and other drafters that have no steps
        return None


def _attention_backend(args: Any) -> str | None:
    common = setting(args, "attention_backend")
    prefill = setting(args, "prefill_attention_backend") or common
    decode = decode_backend(args)
    if prefill == decode:
        return None if decode is None else str(decode)
    return f"{prefill} (prefill), {decode} (decode)"


def _device_name(scheduler: Any) -> str | None:
    if str(scheduler.device) != "cuda":
        return str(scheduler.device)
    try:
        import torch

        return str(torch.cuda.get_device_name())
    except Exception:  # noqa: BLE001  # a name for information must not stop the start
        return None
