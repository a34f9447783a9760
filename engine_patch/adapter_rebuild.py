"""Make requests whole that have a hole in the drafter's KV: retract them, let them prefill anew.

The target's hidden states of a cold spell are gone, so only a second forward of the target gives
the drafter its keys and values back.  SGLang has one: a retracted request loses its KV without
leaving it in the prefix cache, and prefills prompt and answer again.  Its own pause and continue do
that for all running requests of a rank; those without a hole find theirs in the prefix cache.
"""

from __future__ import annotations

import logging
from typing import Any

from engine_patch import adapter_cold as cold

log = logging.getLogger("specdeck")


def rebuild(scheduler: Any) -> tuple[int, str]:
    """Retract and resume, in one pass of the scheduler's loop; the same on all ranks.

    Returns:
        how many requests had a hole, and why nothing was done ("" if it was, or needed not be).
    """
    if scheduler._engine_paused:
        return 0, "this engine is paused: continue it first (POST /continue_generation)"
    batches = (scheduler.running_batch, scheduler.last_batch)
    requests = {id(r): r for batch in batches if batch is not None for r in batch.reqs}
    holes = cold.count([r for r in requests.values() if not r.finished()])
    if not holes:
        return 0, ""
    from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput

    scheduler.pause_generation(PauseGenerationReqInput(mode="retract"))
    scheduler.continue_generation(ContinueGenerationReqInput(torch_empty_cache=False))
    log.info("specdeck: %d requests with a hole in the drafter's KV are prefilled anew", holes)
    return holes, ""
