"""The hooks in SGLang's scheduler, with the signatures its plugin registry gives them.

One process runs one scheduler, hence one rank.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_patch import adapter_lengths, shm
from engine_patch.adapter_facts import facts_of
from engine_patch.adapter_rank import Rank
from engine_patch.adapter_tiers import controller
from engine_patch.wire import ours

log = logging.getLogger("specdeck")

_rank: Rank | None = None
_folder: Path | None = None
_complained = False


def use_folder(folder: Path) -> None:
    """Where this process's rank will publish."""
    global _folder
    _folder = folder


def _guarded(step: Callable[[Rank], None]) -> None:
    """Run a step of bookkeeping; a defect is logged once and never ends a batch."""
    global _complained
    if _rank is None:
        return
    try:
        step(_rank)
    except Exception:
        if not _complained:
            _complained = True
            log.exception("specdeck: a step of bookkeeping fails on this rank")


def attach(scheduler: Any, *_: Any, **__: Any) -> None:
    """Before ``Scheduler.get_init_info``: the scheduler is complete, nothing has run yet."""
    global _rank
    if _rank is not None or _folder is None:
        return
    try:
        mine = controller()
        facts = facts_of(scheduler, mine)
        file = shm.RankFile.create(_folder, facts.dp_rank, facts.pp_rank, facts.tp_rank)
        _rank = Rank(scheduler, file, facts, mine)
    except Exception:
        log.exception("specdeck: this rank cannot publish; it keeps its launch tier")
        return
    tiers = ", ".join(tier.name for tier in facts.tiers) or "none"
    log.info(
        "specdeck: tiers %s; launch tier %s; %s",
        tiers,
        facts.launch_tier,
        facts.unsupported or "ready",
    )


def run_batch(
    original: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    """Around ``Scheduler.run_batch``."""
    _guarded(lambda rank: rank.launching(batch))
    result = original(scheduler, batch, *args, **kwargs)
    adapter_lengths.ran(batch)
    _guarded(lambda rank: rank.launched(batch, result))
    return result


def process_batch_result(_: Any, _scheduler: Any, batch: Any, result: Any) -> None:
    """After ``Scheduler.process_batch_result``."""
    _guarded(lambda rank: rank.finished(batch, result))


def on_idle(*_: Any, **__: Any) -> None:
    """Before ``Scheduler.on_idle``, which may sleep."""
    _guarded(Rank.idle)


def retract_decode(result: Any, *_: Any, **__: Any) -> None:
    """After ``ScheduleBatch.retract_decode``: its first item is the retracted requests."""
    _guarded(lambda rank: rank.retracted(len(result[0])))


def set_internal_state(original: Callable[..., Any], scheduler: Any, recv_req: Any) -> Any:
    """Around ``Scheduler.set_internal_state``: our keys are taken here, all others pass."""
    if not ours(recv_req.server_args):
        return original(scheduler, recv_req)
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    updated = False
    try:
        updated = _rank is not None and _rank.command(recv_req.server_args)
    except Exception:
        log.exception("specdeck: a command failed on this rank")
    return SetInternalStateReqOutput(updated=updated)
