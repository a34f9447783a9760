"""Puts our functions into SGLang: the one place where hook and target meet.

The ``adapter*`` modules are the only ones that know SGLang.  They import it inside functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_patch import (
    adapter_build,
    adapter_decode,
    adapter_flavour,
    adapter_launch,
    adapter_lengths,
    adapter_relay,
    adapter_reserve,
    adapter_scheduler,
    adapter_tiers,
    hooks,
)

_SCHEDULER = "sglang.srt.managers.scheduler"

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "handle_speculative_decoding": adapter_launch.note_arguments,
    "adaptive_unsupported_reason": adapter_launch.unsupported_reason,
    "_init_adaptive_speculative_params": adapter_launch.init_params,
    "resolve_candidate_steps_from_config": adapter_launch.candidate_steps,
    "AdaptiveController": adapter_tiers.TierController,
    "get_alloc_len_per_decode": adapter_reserve.alloc_len,
    "get_req_to_token_extra_context_len": adapter_reserve.row_headroom,
    "compute_num_reserved_tokens": adapter_reserve.reserved_tokens,
    "EAGLEWorkerV2._override_worker_state": adapter_build.scope,
    "EAGLEWorkerV2._stub_skipped_draft_extend": adapter_relay.stub,
    "EagleDraftWorker.draft": adapter_relay.draft,
    "EagleDraftWorker._draft_extend_for_prefill": adapter_relay.prefill,
    "EagleDraftWorker._draft_extend_for_decode": adapter_flavour.extend,
    "EagleDraftInput.create_idle_input": adapter_relay.idle_input,
    "EAGLEWorkerV2._build_trivial_verify_input": adapter_decode.one_node,
    "EAGLEWorkerV2.verify": adapter_decode.verify,
    "FutureMap.stash": adapter_decode.stash,
    "FutureMap.resolve_seq_lens_cpu": adapter_lengths.resolve,
    "eagle_prepare_for_verify": adapter_decode.prepare,
    "StandaloneWorkerV2.__init__": adapter_build.give_standalone_a_controller,
    "get_batch_sizes_to_capture": adapter_build.capture_sizes,
    "ModelRunner.max_decode_logits_rows": adapter_build.logits_rows,
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

    SGLang loads plugins in every process.  The scheduler's and the worker's hooks are registered
    only where the scheduler's module is loaded anyway, and the worker's only if tiers are planned:
    a hook imports its target, and the other processes must not import a model because of us.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    adapter_scheduler.use_folder(folder)
    in_scheduler = _SCHEDULER in sys.modules
    tiers = adapter_launch.in_force() is not None
    for touch in hooks.TABLE:
        if not touch.hook:
            continue
        if touch.place is hooks.Place.SCHEDULER and not in_scheduler:
            continue
        if touch.place is hooks.Place.WORKER and not (in_scheduler and tiers):
            continue
        HookRegistry.register(touch.path, FUNCTIONS[touch.name], HookType(touch.hook))
