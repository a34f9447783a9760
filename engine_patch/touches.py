"""The table of every SGLang attribute that the plugin touches.

One table for all versions; where 0.5.17 differs from 0.5.19 and later, a row says how.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class Kind(StrEnum):
    """What a touched name must be."""

    MODULE_NAME = "name"
    CLASS = "class"
    FUNCTION = "function"
    METHOD = "method"
    ATTRIBUTE = "attribute"


class Place(StrEnum):
    """In which processes a hook is registered."""

    EVERYWHERE = "everywhere"
    SCHEDULER = "scheduler"
    WORKER = "worker"
    """In schedulers, and only where tiers are planned."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One touched name.

    Args:
        module: dotted module path.
        name: ``function``, ``Class``, ``Class.method`` or ``Class.attribute``.
        params: parameters in order, without ``self``; more may follow if they have defaults.
        use: what the plugin does with it.
        hook: how SGLang's plugin registry wraps it ("before", "after", "around", "replace"), ""
            if it is only read or called.
        older: module and class (and name) of an attribute in 0.5.17, where that differs.
        older_params: its parameters in 0.5.17, where they differ.
        place: in which processes the hook is registered.
    """

    module: str
    name: str
    kind: Kind
    use: str
    params: tuple[str, ...] | None = None
    hook: str = ""
    older: tuple[str, ...] | None = None
    older_params: tuple[str, ...] | None = None
    place: Place = Place.EVERYWHERE

    @property
    def path(self) -> str:
        """Dotted path as SGLang's plugin registry takes it."""
        return f"{self.module}.{self.name}"


def _calls(
    kind: Kind,
    module: str,
    name: str,
    use: str,
    *params: str,
    hook: str = "",
    older: tuple[str, ...] | None = None,
    place: Place = Place.EVERYWHERE,
) -> Touch:
    return Touch(module, name, kind, use, params, hook, older_params=older, place=place)


_function = partial(_calls, Kind.FUNCTION)
_method = partial(_calls, Kind.METHOD)


def _reads(
    module: str, use: str, owner: str, *names: str, older: tuple[str, ...] | None = None
) -> Iterator[Touch]:
    for name in names:
        yield Touch(module, f"{owner}.{name}", Kind.ATTRIBUTE, use, older=older)


_PLUGINS = "sglang.srt.plugins.hook_registry"
_ARGS = "sglang.srt.arg_groups.speculative_hook"
_PARAMS = "sglang.srt.speculative.adaptive_spec_params"
_STATES = "sglang.srt.speculative.adaptive_runtime_state"
_WORKER = "sglang.srt.speculative.eagle_worker_v2"
_SCHEDULER = "sglang.srt.managers.scheduler"
_BATCH = "sglang.srt.managers.schedule_batch"
_RESULT = "sglang.srt.managers.utils"
_RELAY = "sglang.srt.managers.overlap_utils"
_POOL = "sglang.srt.managers.scheduler_components.pool_stats_observer"
_MESSAGES = "sglang.srt.managers.io_struct"
_CONTROL = "sglang.srt.managers.tokenizer_control_mixin"
_HTTP = "sglang.srt.entrypoints.http_server"
_AUTH = "sglang.srt.utils.auth"
_CONTEXT = "sglang.srt.runtime_context"
_SIZING = "sglang.srt.mem_cache.allocation_sizing"
_FORWARD = "sglang.srt.model_executor.forward_batch_info"
_UTILS = "sglang.srt.speculative.eagle_utils"
_INFO = "sglang.srt.speculative.eagle_info"
_SPEC = "sglang.srt.speculative.spec_info"
_RUNNERS = "sglang.srt.model_executor.runner"
_MODEL = "sglang.srt.model_executor.model_runner"
_MEMORY = "sglang.srt.mem_cache.memory_pool"
_RADIX = "sglang.srt.layers.radix_attention"
_STANDALONE = "sglang.srt.speculative.standalone_worker_v2"
_WIDTH = "sglang.srt.speculative.spec_utils"
_GROUPS = "sglang.srt.distributed.parallel_state"
_FIELDS = "sglang.srt.arg_groups.fields"
_ALL_FIELDS = ("sglang.srt.server_args", "ServerArgs")

# fmt: off
TABLE: tuple[Touch, ...] = (
    # The plugin framework itself.
    _method(_PLUGINS, "HookRegistry.register", "registers our hooks",
            "target", "hook", "hook_type"),
    *_reads(_PLUGINS, "kinds of hooks", "HookType", "BEFORE", "AFTER", "AROUND", "REPLACE"),
    # Launch: which tiers are built, and what the user asked for.
    _function(_ARGS, "handle_speculative_decoding", "reads the flags before defaults are put in",
              "server_args", hook="before"),
    _function(_PARAMS, "adaptive_unsupported_reason",
              "all of SGLang's refusals but the one for topk", "server_args", hook="around"),
    _function(_ARGS, "_init_adaptive_speculative_params", "lets the launch tier be a tree",
              "server_args", hook="around"),
    _function(_PARAMS, "resolve_candidate_steps_from_config", "sizes for the widest of our tiers",
              "cfg_path", hook="around"),
    *_reads(f"{_FIELDS}.spec", "flags as given", "Spec", "speculative_algorithm",
            "speculative_adaptive", "speculative_num_steps", "speculative_eagle_topk",
            "speculative_num_draft_tokens", "speculative_adaptive_config", older=_ALL_FIELDS),
    *_reads(f"{_FIELDS}.schedule", "flags as given", "Schedule", "max_running_requests",
            older=_ALL_FIELDS),
    *_reads(f"{_FIELDS}.serving", "who may command", "Serving", "admin_api_key",
            older=_ALL_FIELDS),
    # The controller: ours in place of the shipped one, with the same methods.
    Touch(_STATES, "AdaptiveController", Kind.CLASS, "replaced by our controller", hook="replace",
          place=Place.WORKER),
    _method(_STATES, "AdaptiveController.__init__", "same constructor", "worker", "policy",
            older=("worker", "config_path")),
    _method(_STATES, "AdaptiveController.register", "given the launch tier", "state", "steps"),
    _method(_STATES, "AdaptiveController.init_states", "builds the other tiers", "cuda_graph_bs"),
    _method(_STATES, "AdaptiveController.activate_step_by_batch",
            "asked at the head of a decode batch", "batch_size"),
    _method(_STATES, "AdaptiveController.on_verify_complete", "told when results arrive",
            "num_correct_drafts_per_req", "batch_size"),
    *_reads(_STATES, "a built tier", "SpecRuntimeState",
            "speculative_num_steps", "target_graph_runner"),
    _method(_WORKER, "EAGLEWorkerV2.activate_step_by_batch", "SGLang asks the controller here",
            "batch_size"),
    _method(_WORKER, "EAGLEWorkerV2.build_adaptive_runtime_state", "builds a tier",
            "speculative_num_steps", "speculative_num_draft_tokens", "cuda_graph_bs"),
    _method(_WORKER, "EAGLEWorkerV2.apply_runtime_state", "switches", "state"),
    _method(_WORKER, "EAGLEWorkerV2._override_worker_state", "adds topk to what a build overrides",
            "speculative_num_steps", "speculative_num_draft_tokens", "cuda_graph_bs",
            hook="around", place=Place.WORKER),
    *_reads(_WORKER, "what a rank really runs", "EAGLEWorkerV2", "speculative_num_steps", "topk",
            "speculative_num_draft_tokens", "_draft_worker",
            "speculative_algorithm"),
    *_reads(_WORKER, "the drafter", "EagleDraftWorker", "topk", "draft_runner", "draft_worker"),
    Touch(_STANDALONE, "StandaloneWorkerV2.__init__", Kind.METHOD,
          "gives a standalone drafter our controller", hook="after", place=Place.WORKER),
    _function(_WIDTH, "resolve_num_tokens_per_req", "tells where the shape is read from"),
    # The relay: candidates of the widest tier from batch to batch, a tier's share to its draft.
    _method(_WORKER, "EagleDraftWorker.draft", "gives a tier its share of the candidates", "batch",
            hook="around", place=Place.WORKER),
    _method(_WORKER, "EagleDraftWorker._draft_extend_for_prefill", "keeps the full width", "batch",
            "target_hidden_states", "next_token_ids", "mm_input_embeds",
            hook="around", place=Place.WORKER),
    _method(_WORKER, "EagleDraftWorker._draft_extend_for_decode",
            "finds the next round's candidates, and runs the flavour of off", "batch",
            "batch_result", hook="around", place=Place.WORKER),
    _method(_WORKER, "EAGLEWorkerV2._stub_skipped_draft_extend", "keeps the full width", "batch",
            "batch_output", hook="around", place=Place.WORKER),
    Touch(_INFO, "EagleDraftInput.create_idle_input", Kind.METHOD, "keeps the full width",
          hook="around", place=Place.WORKER),
    *_reads(_INFO, "relayed candidates", "EagleDraftInput", "topk_p", "topk_index"),
    # The KV reserve: by tier, and for what runs and what is announced.
    _function(_SIZING, "get_alloc_len_per_decode", "KV slots per request and step", hook="around",
              older=("server_args",)),
    _function(_SIZING, "get_req_to_token_extra_context_len", "room in a request's row",
              hook="around", older=("server_args",)),
    _function(_RESULT, "compute_num_reserved_tokens", "length limit of requests", hook="around",
              older=("server_args",)),
    # Graphs: a tier's own batch sizes, rows for all of them.
    _function(f"{_RUNNERS}.base_cuda_graph_runner", "get_batch_sizes_to_capture",
              "leaves out batches that a tier never serves", "model_runner", "captured_req_width",
              hook="around", place=Place.WORKER),
    _method(_MODEL, "ModelRunner.max_decode_logits_rows", "rows for every tier", hook="around",
            place=Place.WORKER),
    Touch(_MODEL, "ModelRunner.decode_num_tokens_per_req", Kind.METHOD, "rows for every tier"),
    # Off as ordinary decode.
    _function(_UTILS, "eagle_prepare_for_verify", "forwards an ordinary decode batch while off",
              "verify_input", "req_to_token_pool", "batch", "target_worker",
              hook="around", place=Place.WORKER),
    _method(_WORKER, "EAGLEWorkerV2._build_trivial_verify_input", "builds no tree while off",
            "batch", hook="around", place=Place.WORKER),
    Touch(_WORKER, "EAGLEWorkerV2.verify", Kind.METHOD, "forwards and samples while off",
          hook="around", place=Place.WORKER),
    _method(_RELAY, "FutureMap.stash", "relays the token alone while off", "future_indices",
            "payload", hook="around", place=Place.WORKER),
    _method(_RELAY, "FutureMap.resolve_seq_lens_cpu", "lengths of requests while off", "batch",
            hook="around", place=Place.WORKER),
    *_reads(_RELAY, "lengths of requests while off", "FutureMap", "needs_cpu_seq_lens"),
    *_reads(_INFO, "lengths of requests while off", "EagleDraftInput", "future_indices"),
    *_reads(_BATCH, "lengths of requests while off", "ScheduleBatch", "seq_lens_cpu",
            "seq_lens_sum"),
    _method(_MODEL, "ModelRunner.sample", "samples while off", "logits_output", "forward_batch"),
    *_reads(_INFO, "a round without a tree", "EagleVerifyInput", "draft_token", "spec_steps"),
    *_reads(_INFO, "a round without a tree", "EagleDraftInput", "bonus_tokens"),
    *_reads(_RELAY, "candidates of a round", "RelayPayload", "topk_p", "bonus_tokens"),
    *_reads(_BATCH, "rounds that need SGLang's verify", "ScheduleBatch", "has_grammar",
            "return_logprob", "enable_overlap", "sampling_info"),
    *_reads(_RESULT, "the result of a round", "GenerationBatchResult", "next_token_ids",
            "speculative_num_draft_tokens", "next_draft_input", "accept_lens", "new_seq_lens",
            "routed_experts_output", "indexer_topk_output", "extra_keep_alive_refs"),
    _method(f"{_RUNNERS}.decode_cuda_graph_runner", "DecodeCudaGraphRunner.__init__",
            "captures ordinary decode for off", "model_runner"),
    _method(f"{_RUNNERS}.decode_cuda_graph_runner", "DecodeCudaGraphRunner.get_spec_info",
            "captures ordinary decode for off", "num_tokens"),
    Touch(f"{_RUNNERS}.decode_cuda_graph_runner", "DecodeCudaGraphRunner.capture_prepare",
          Kind.METHOD, "captures the hidden states"),
    *_reads(_MODEL, "lent to the graph runner", "ModelRunner", "spec_algorithm",
            "decode_cuda_graph_runner"),
    *_reads(_MODEL, "the scheduler waits for it", "ModelRunner", "shared_read_done_event",
            older=(_MODEL, "ModelRunner", "war_fastpath_read_done_event")),
    *_reads(_FORWARD, "an ordinary decode batch", "ForwardMode", "DECODE", "DRAFT_EXTEND_V2"),
    *_reads(_SPEC, "an ordinary decode batch", "SpeculativeAlgorithm", "NONE"),
    *_reads(_MEMORY, "the slot of a new token", "ReqToTokenPool", "req_to_token"),
    Touch(_MEMORY, "KVWriteLoc", Kind.CLASS, "keeps the drafter's keys and values"),
    Touch(_MEMORY, "MHATokenToKVPool.set_kv_buffer", Kind.METHOD,
          "keeps the drafter's keys and values",
          ("layer", "loc_info", "cache_k", "cache_v", "k_scale", "v_scale")),
    *_reads(_MEMORY, "a slot to try keep in", "KVCache", "page_size"),
    *_reads(_RADIX, "keeps the drafter's keys and values", "RadixAttention", "tp_k_head_num",
            "tp_v_head_num", "qk_head_dim", "v_head_dim", "layer_id", "k_scale", "v_scale"),
    *_reads(_BATCH, "keeps requests with a hole out of the prefix cache", "Req",
            "skip_radix_cache_insert", "origin_input_ids", "output_ids"),
    *_reads(_BATCH, "whose keys and values are stored together", "Req", "rid"),
    _function(_GROUPS, "get_world_group", "ranks agree on what fits"),
    _function(_GROUPS, "get_pp_group", "ranks agree on what fits"),
    # The scheduler: commands in, numbers out.
    _method(_SCHEDULER, "Scheduler.get_init_info", "publishes a rank once it is complete",
            hook="before", place=Place.SCHEDULER),
    _method(_SCHEDULER, "Scheduler.run_batch", "counts steps, marks results with their tier",
            "batch", hook="around", place=Place.SCHEDULER),
    _method(_SCHEDULER, "Scheduler.process_batch_result", "counts tokens and drafts, publishes",
            "batch", "result", hook="after", place=Place.SCHEDULER),
    _method(_SCHEDULER, "Scheduler.on_idle", "publishes while nothing runs", hook="before",
            place=Place.SCHEDULER),
    _method(_SCHEDULER, "Scheduler.set_internal_state", "takes our commands out of the broadcast",
            "recv_req", hook="around", place=Place.SCHEDULER),
    *_reads(_SCHEDULER, "load and KV numbers", "Scheduler",
            "running_batch", "waiting_queue", "chunked_req", "grammar_manager",
            "max_running_requests", "max_total_num_tokens", "page_size", "pool_stats_observer",
            "server_args", "forward_stream_ctx", "device"),
    *_reads(_SCHEDULER, "rebuilds requests with a hole", "Scheduler", "last_batch",
            "_engine_paused"),
    _method(_SCHEDULER, "Scheduler.pause_generation", "rebuilds requests with a hole", "recv_req"),
    _method(_SCHEDULER, "Scheduler.continue_generation", "rebuilds requests with a hole",
            "recv_req"),
    *_reads(_MESSAGES, "rebuilds requests with a hole", "PauseGenerationReqInput", "mode"),
    *_reads(_MESSAGES, "rebuilds requests with a hole", "ContinueGenerationReqInput",
            "torch_empty_cache"),
    Touch(_BATCH, "ScheduleBatch.retract_decode", Kind.METHOD, "counts retractions", hook="after",
          place=Place.SCHEDULER),
    *_reads(_BATCH, "the batch at hand", "ScheduleBatch",
            "reqs", "forward_mode", "extend_num_tokens"),
    *_reads(_FORWARD, "kind of batch", "ForwardMode", "is_decode", "is_extend"),
    *_reads(_RESULT, "results of a batch", "GenerationBatchResult",
            "num_correct_drafts_per_req_cpu", "can_run_cuda_graph"),
    *_reads(_POOL, "KV numbers", "PoolStats",
            "full_num_used", "full_available_size", "full_evictable_size"),
    _method(_POOL, "SchedulerPoolStatsObserver.get_pool_stats", "KV numbers"),
    Touch(_SIZING, "get_alloc_reserve_per_decode", Kind.FUNCTION, "KV reserve per request"),
    _function(_CONTEXT, "get_parallel", "place of a rank"),
    # The HTTP process: routes, and the way of a command to the ranks.
    Touch(_HTTP, "app", Kind.MODULE_NAME, "carries /speculation"),
    _function(_HTTP, "get_global_state", "finds the tokenizer manager"),
    *_reads(_HTTP, "sends commands", "_GlobalState", "tokenizer_manager"),
    _method(_CONTROL, "TokenizerControlMixin.set_internal_state", "broadcasts a command", "obj"),
    *_reads(_MESSAGES, "a command", "SetInternalStateReq", "server_args"),
    *_reads(_MESSAGES, "its answer", "SetInternalStateReqOutput", "updated"),
    *_reads(_AUTH, "protects PUT like SGLang's admin routes", "AuthLevel", "ADMIN_OPTIONAL"),
)
# fmt: on
"""All touched names.  ``docs/plugin.md`` lists the same."""
