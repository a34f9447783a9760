"""What differs between the SGLang versions, under one name each.

Imports SGLang inside functions only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

READ_DONE = ("shared_read_done_event", "war_fastpath_read_done_event")
"""The event that tells the scheduler that a forward has read the shared request table, as 0.5.19
and later and as 0.5.17 name it."""
_RESTORED = "adaptive_spec.restore"


def setting(server_args: Any, name: str) -> Any:
    """One resolved server argument, None if this SGLang does not know it."""
    try:
        from sglang.srt.runtime_context import get_context

        return get_context().config_leaf(name)
    except Exception:  # noqa: BLE001  # an older SGLang, or an argument it does not have
        return getattr(server_args, name, None)


def environment_says(name: str) -> bool:
    """Whether SGLang takes one of its environment variables for true."""
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "y")


def spec_reads_server_args() -> bool:
    """Whether the speculative shape is read from the server arguments (0.5.17)."""
    import inspect

    from sglang.srt.speculative.spec_utils import resolve_num_tokens_per_req

    return "server_args" in inspect.signature(resolve_num_tokens_per_req).parameters


@contextlib.contextmanager
def shape_in_arguments(worker: Any, steps: int, topk: int, tokens: int) -> Iterator[None]:
    """Show a tier's shape to the readers of server arguments while it is built (0.5.17).

    The arguments are read-only once resolved, and SGLang's own way around keeps a record of each
    change for good; so they are set and put back underneath.
    """
    draft = worker._draft_worker
    holders = (
        worker,
        draft,
        draft.draft_worker,
        draft.draft_runner,
        worker.target_worker,
        worker.target_worker.model_runner,
    )
    objects = {id(o.server_args): o.server_args for o in holders if hasattr(o, "server_args")}
    with contextlib.suppress(Exception):
        from sglang.srt.runtime_context import get_server_args

        objects.setdefault(id(get_server_args()), get_server_args())
    values = {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }
    saved = [(o, {name: getattr(o, name) for name in values}) for o in objects.values()]
    try:
        for arguments in objects.values():
            for name, value in values.items():
                object.__setattr__(arguments, name, value)
        yield
    finally:
        for arguments, before in saved:
            for name, value in before.items():
                object.__setattr__(arguments, name, value)


def set_context_topk(topk: int) -> None:
    """Set topk in SGLang's context, without a record of it (see ``forget_switch``)."""
    from sglang.srt.runtime_context import get_context

    context = get_context()
    context.override("specdeck.build", speculative_eagle_topk=topk)


def forget_switch() -> None:
    """Drop SGLang's record of the switch before the last.

    It writes one entry per switch for good and replays the list for ``/server_info``; the last one
    says the same as all of them.
    """
    from sglang.srt.runtime_context import get_context

    record = getattr(get_context(), "_overrides_log", None)
    if record and len(record) > 1 and record[-1][0] == record[-2][0] == _RESTORED:
        del record[-2]


def clear_read_done(runner: Any) -> None:
    """Drop a read-done event of an earlier round; without one the scheduler waits the safe way."""
    for name in READ_DONE:
        if hasattr(runner, name):
            setattr(runner, name, None)


def hand_over_read_done(target: Any, drafter: Any) -> None:
    """Let the scheduler wait for the target's event where the drafter's is not coming."""
    for name in READ_DONE:
        if hasattr(target, name):
            setattr(drafter, name, getattr(target, name))
            setattr(target, name, None)


def least_of_all_ranks(number: int) -> int:
    """The smallest of a number on the ranks of this replica; every rank must call.

    With pipeline parallelism only the last stage has a drafter, so the others would never call;
    nothing is switched there, so nothing needs to be agreed on.
    """
    import torch
    from sglang.srt.distributed.parallel_state import get_pp_group, get_world_group

    # Not the TP group: while tiers are built it may be the drafter's own.
    group = get_world_group()
    if get_pp_group().world_size > 1:
        return number
    if group.world_size < 2:
        return number
    box = torch.tensor([number], dtype=torch.int64)
    torch.distributed.all_reduce(box, op=torch.distributed.ReduceOp.MIN, group=group.cpu_group)
    return int(box.item())


def free_memory() -> int | None:
    """Free bytes of this rank's GPU; None without one."""
    try:
        import torch

        return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None
    except Exception:  # noqa: BLE001  # a number for information must not stop the start
        return None
