"""Puts our functions into SGLang: the one place where hook and target meet.

The ``adapter*`` modules are the only ones that know SGLang.  They import it inside functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_patch import adapter_launch, adapter_policy, adapter_scheduler, hooks

_SCHEDULER = "sglang.srt.managers.scheduler"

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "handle_speculative_decoding": adapter_launch.note_arguments,
    "adaptive_unsupported_reason": adapter_launch.note_reason,
    "resolve_candidate_steps_from_config": adapter_launch.candidate_steps,
    "AdaptiveSpeculativeParams": adapter_policy.TierPolicy,
    "AdaptiveController.init_states": adapter_policy.measure_builds,
    "Scheduler.get_init_info": adapter_scheduler.attach,
    "Scheduler.run_batch": adapter_scheduler.run_batch,
    "Scheduler.process_batch_result": adapter_scheduler.process_batch_result,
    "Scheduler.on_idle": adapter_scheduler.on_idle,
    "Scheduler.set_internal_state": adapter_scheduler.set_internal_state,
    "ScheduleBatch.retract_decode": adapter_scheduler.retract_decode,
}
"""Our function for each row of the table that names a hook."""


def install(folder: Path) -> None:
    """Register our hooks; SGLang applies them when all plugins are loaded.

    SGLang loads plugins in every process.  The scheduler's hooks are registered only where its
    module is loaded anyway, so that the detokenizer does not import a scheduler because of us.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    adapter_scheduler.use_folder(folder)
    in_scheduler = _SCHEDULER in sys.modules
    for touch in hooks.TABLE:
        if not touch.hook:
            continue
        if touch.name.startswith(("Scheduler.", "ScheduleBatch.")) and not in_scheduler:
            continue
        HookRegistry.register(touch.path, FUNCTIONS[touch.name], HookType(touch.hook))
