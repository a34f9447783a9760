"""Every SGLang attribute that the plugin touches, and the check that they are what we think.

SGLang gives no promise about its inside, so the table below is read against its *source* before a
single hook is registered: whatever was renamed, moved or given other parameters is found at load
instead of in the middle of a decode batch.  Reading the source, not the imported modules, keeps the
check free of side effects: it runs without a GPU, without importing torch, in about 0.3 s.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib import metadata, util
from pathlib import Path

from engine_patch.source import Function, Source, parameters

TESTED = ("0.5.23",)
"""SGLang versions on which the engine suite runs."""


class Kind(StrEnum):
    """What a touched name must be."""

    MODULE_NAME = "name"
    CLASS = "class"
    FUNCTION = "function"
    METHOD = "method"
    ATTRIBUTE = "attribute"


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
        older: module and class that hold an attribute in 0.5.17, where that differs.
    """

    module: str
    name: str
    kind: Kind
    use: str
    params: tuple[str, ...] | None = None
    hook: str = ""
    older: tuple[str, str] | None = None

    @property
    def path(self) -> str:
        """Dotted path as SGLang's plugin registry takes it."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the plugin fits the SGLang that is installed.

    Args:
        version: SGLang's version, "unknown" if its metadata is missing.
        mismatches: what differs, one short phrase each; empty means that it fits.
    """

    version: str
    mismatches: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every touched name is as expected."""
        return not self.mismatches

    @property
    def tested(self) -> bool:
        """Whether this version is one the engine suite runs on."""
        return self.version in TESTED

    def sentence(self, plugin_version: str) -> str:
        """The refusal: versions, what differs, what to do.  "" if it fits."""
        if self.fits:
            return ""
        first, rest = self.mismatches[0], len(self.mismatches) - 1
        more = f" and {rest} more" if rest else ""
        remedy = (
            "it was changed after its release, so install it anew"
            if self.tested
            else f"install SGLang {TESTED[-1]} or a specdeck made for {self.version}"
        )
        return (
            f"plugin refused: specdeck {plugin_version} does not know this SGLang {self.version} "
            f"({first}{more}), so SGLang serves without it; {remedy}, "
            "and run 'specdeck engine check' for the whole list"
        )


def _calls(kind: Kind, module: str, name: str, use: str, *params: str, hook: str = "") -> Touch:
    return Touch(module, name, kind, use, params, hook)


_function = partial(_calls, Kind.FUNCTION)
_method = partial(_calls, Kind.METHOD)


def _reads(
    module: str, use: str, owner: str, *names: str, older: tuple[str, str] | None = None
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
_POOL = "sglang.srt.managers.scheduler_components.pool_stats_observer"
_MESSAGES = "sglang.srt.managers.io_struct"
_CONTROL = "sglang.srt.managers.tokenizer_control_mixin"
_HTTP = "sglang.srt.entrypoints.http_server"
_AUTH = "sglang.srt.utils.auth"
_CONTEXT = "sglang.srt.runtime_context"
_SIZING = "sglang.srt.mem_cache.allocation_sizing"
_FORWARD = "sglang.srt.model_executor.forward_batch_info"
_POLICY = "AdaptiveSpeculativeParams"
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
    _function(_PARAMS, "adaptive_unsupported_reason", "learns why SGLang turns adaptive off",
              "server_args", hook="after"),
    _function(_PARAMS, "resolve_candidate_steps_from_config", "gives the step counts of our tiers",
              "cfg_path", hook="around"),
    *_reads(f"{_FIELDS}.spec", "flags as given", "Spec", "speculative_algorithm",
            "speculative_adaptive", "speculative_num_steps", older=_ALL_FIELDS),
    *_reads(f"{_FIELDS}.schedule", "flags as given", "Schedule", "max_running_requests",
            older=_ALL_FIELDS),
    *_reads(f"{_FIELDS}.serving", "who may command", "Serving", "admin_api_key",
            older=_ALL_FIELDS),
    # The policy: ours in place of the shipped one.
    Touch(_PARAMS, _POLICY, Kind.CLASS, "replaced by our policy", hook="replace"),
    _method(_PARAMS, f"{_POLICY}.__init__", "same constructor", "initial_steps", "cfg_path"),
    _method(_PARAMS, f"{_POLICY}.get_steps_for_batch", "asked at the head of a decode batch",
            "batch_size"),
    _method(_PARAMS, f"{_POLICY}.on_verify_complete", "told when results arrive",
            "num_correct_drafts_per_req", "batch_size"),
    _method(_PARAMS, f"{_POLICY}.set_cuda_graph_bs", "told the graph sizes", "cuda_graph_bs"),
    _method(_PARAMS, f"{_POLICY}.cuda_graph_bs_for_step", "asked for graph sizes", "step"),
    _method(_PARAMS, f"{_POLICY}.candidate_steps", "asked for the tiers"),
    _method(_STATES, "AdaptiveController.init_states", "measures what each tier costs to build",
            "cuda_graph_bs", hook="around"),
    _method(_STATES, "AdaptiveController._activate", "applies a commanded tier while idle",
            "speculative_num_steps"),
    *_reads(_STATES, "built states", "AdaptiveController", "worker", "params", "_states"),
    *_reads(_STATES, "built states", "SpecRuntimeState",
            "speculative_num_steps", "target_graph_runner"),
    _method(_WORKER, "EAGLEWorkerV2.activate_step_by_batch", "SGLang asks the policy here",
            "batch_size"),
    _method(_WORKER, "EAGLEWorkerV2.build_adaptive_runtime_state", "SGLang builds a tier here",
            "speculative_num_steps", "speculative_num_draft_tokens", "cuda_graph_bs"),
    _method(_WORKER, "EAGLEWorkerV2.apply_runtime_state", "SGLang switches here", "state"),
    *_reads(_WORKER, "what a rank really runs", "EAGLEWorkerV2", "speculative_num_steps"),
    # The scheduler: commands in, numbers out.
    _method(_SCHEDULER, "Scheduler.get_init_info", "publishes a rank once it is complete",
            hook="before"),
    _method(_SCHEDULER, "Scheduler.run_batch", "counts steps, marks results with their tier",
            "batch", hook="around"),
    _method(_SCHEDULER, "Scheduler.process_batch_result", "counts tokens and drafts, publishes",
            "batch", "result", hook="after"),
    _method(_SCHEDULER, "Scheduler.on_idle", "publishes while nothing runs", hook="before"),
    _method(_SCHEDULER, "Scheduler.set_internal_state", "takes our commands out of the broadcast",
            "recv_req", hook="around"),
    *_reads(_SCHEDULER, "load and KV numbers", "Scheduler",
            "running_batch", "waiting_queue", "chunked_req", "grammar_manager",
            "max_running_requests", "max_total_num_tokens", "page_size", "pool_stats_observer",
            "server_args", "forward_stream_ctx", "device"),
    Touch(_BATCH, "ScheduleBatch.retract_decode", Kind.METHOD, "counts retractions", hook="after"),
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


def engine_root() -> Path | None:
    """The folder of the installed ``sglang`` package, None if there is none."""
    found = util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations)))


def engine_version() -> str:
    """The version of the installed SGLang, "unknown" if it has no metadata."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return "unknown"


def check(
    root: Path, *, version: str | None = None, table: Sequence[Touch] | None = None
) -> Verdict:
    """Compare SGLang's source below ``root`` (the ``sglang`` folder) with the table."""
    sources: dict[str, Source | None] = {}
    mismatches: dict[str, None] = {}

    def problem(touch: Touch) -> str:
        if touch.module not in sources:
            sources[touch.module] = Source.read(root, touch.module)
        source = sources[touch.module]
        return f"no module {touch.module}" if source is None else _problem(source, touch)

    # TABLE is looked up at the call, not bound as a default: it is one table for everybody.
    for touch in TABLE if table is None else table:
        found = problem(touch)
        if found and touch.older is not None:
            module, owner = touch.older
            name = f"{owner}.{touch.name.rpartition('.')[2]}"
            if not problem(replace(touch, module=module, name=name)):
                continue
        if found:
            mismatches[found] = None
    return Verdict(engine_version() if version is None else version, tuple(mismatches))


def _problem(source: Source, touch: Touch) -> str:
    """What is wrong with a touched name, "" if nothing."""
    owner, _, member = touch.name.rpartition(".")
    if touch.kind is Kind.FUNCTION:
        return _compare(touch, source.function(touch.name), bound=False)
    if touch.kind is Kind.MODULE_NAME:
        there = touch.name in source.names
    elif touch.kind is Kind.CLASS:
        there = touch.name in source.classes
    elif owner not in source.classes:
        return f"no class {touch.module}.{owner}"
    elif touch.kind is Kind.METHOD:
        return _compare(touch, source.method(owner, member), bound=True)
    else:
        there = source.has(owner, member)
    return "" if there else f"no {touch.kind} {touch.path}"


def _compare(touch: Touch, found: Function | None, *, bound: bool) -> str:
    if found is None:
        return f"no {touch.kind} {touch.path}"
    if touch.params is None:
        return ""
    names, required = parameters(found, bound=bound)
    wanted = len(touch.params)
    if names[:wanted] == touch.params and required <= wanted:
        return ""
    return (
        f"{touch.kind} {touch.path} takes ({', '.join(names)}) "
        f"where ({', '.join(touch.params)}) was expected"
    )
