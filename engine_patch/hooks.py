"""Every SGLang attribute that the plugin touches, and the check that they are what we think.

SGLang gives no promise about its inside, so the table below is read against its *source* before a
single hook is registered: whatever was renamed, moved or given other parameters is found at load
instead of in the middle of a decode batch.  Reading the source, not the imported modules, keeps the
check free of side effects: it runs without a GPU, without importing torch, in about 0.3 s.

Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata, util
from pathlib import Path

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
    """

    module: str
    name: str
    kind: Kind
    use: str
    params: tuple[str, ...] | None = None
    hook: str = ""

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
        return (
            f"plugin refused: specdeck {plugin_version} does not know this SGLang {self.version} "
            f"({first}{more}), so SGLang serves without it; "
            f"install SGLang {TESTED[-1]} or a specdeck made for {self.version}, "
            "and run 'specdeck engine check' for the whole list"
        )


def _rows(module: str, use: str, kind: Kind, names: Iterable[str]) -> Iterator[Touch]:
    for name in names:
        yield Touch(module, name, kind, use)


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

TABLE: tuple[Touch, ...] = (
    # The plugin framework itself.
    Touch(
        _PLUGINS,
        "HookRegistry.register",
        Kind.METHOD,
        "registers our hooks",
        ("target", "hook", "hook_type"),
    ),
    *_rows(
        _PLUGINS,
        "kinds of hooks",
        Kind.ATTRIBUTE,
        ("HookType.BEFORE", "HookType.AFTER", "HookType.AROUND", "HookType.REPLACE"),
    ),
    # Launch: which tiers are built, and what the user asked for.
    Touch(
        _ARGS,
        "handle_speculative_decoding",
        Kind.FUNCTION,
        "reads the flags as given, before defaults are put in",
        ("server_args",),
        "before",
    ),
    Touch(
        _PARAMS,
        "adaptive_unsupported_reason",
        Kind.FUNCTION,
        "learns why SGLang turns --speculative-adaptive off",
        ("server_args",),
        "after",
    ),
    Touch(
        _PARAMS,
        "resolve_candidate_steps_from_config",
        Kind.FUNCTION,
        "step counts of our tiers, which size buffers",
        ("cfg_path",),
        "around",
    ),
    # The policy: ours in place of the shipped one.
    Touch(
        _PARAMS,
        "AdaptiveSpeculativeParams",
        Kind.CLASS,
        "replaced by our policy",
        None,
        "replace",
    ),
    Touch(
        _PARAMS,
        "AdaptiveSpeculativeParams.__init__",
        Kind.METHOD,
        "same constructor",
        ("initial_steps", "cfg_path"),
    ),
    Touch(
        _PARAMS,
        "AdaptiveSpeculativeParams.get_steps_for_batch",
        Kind.METHOD,
        "asked at the head of each decode batch",
        ("batch_size",),
    ),
    Touch(
        _PARAMS,
        "AdaptiveSpeculativeParams.on_verify_complete",
        Kind.METHOD,
        "told when results arrive",
        ("num_correct_drafts_per_req", "batch_size"),
    ),
    Touch(
        _PARAMS,
        "AdaptiveSpeculativeParams.set_cuda_graph_bs",
        Kind.METHOD,
        "told the graph sizes",
        ("cuda_graph_bs",),
    ),
    Touch(
        _PARAMS,
        "AdaptiveSpeculativeParams.cuda_graph_bs_for_step",
        Kind.METHOD,
        "asked for a tier's graph sizes",
        ("step",),
    ),
    Touch(
        _PARAMS,
        "AdaptiveSpeculativeParams.candidate_steps",
        Kind.METHOD,
        "asked for the tiers",
    ),
    Touch(
        _STATES,
        "AdaptiveController.init_states",
        Kind.METHOD,
        "measures what each tier costs to build",
        ("cuda_graph_bs",),
        "around",
    ),
    Touch(
        _STATES,
        "AdaptiveController._activate",
        Kind.METHOD,
        "applies a commanded tier to an idle engine",
        ("speculative_num_steps",),
    ),
    *_rows(
        _STATES,
        "built states and their worker",
        Kind.ATTRIBUTE,
        (
            "AdaptiveController.worker",
            "AdaptiveController.params",
            "AdaptiveController._states",
            "SpecRuntimeState.speculative_num_steps",
            "SpecRuntimeState.target_graph_runner",
        ),
    ),
    Touch(
        _WORKER,
        "EAGLEWorkerV2.activate_step_by_batch",
        Kind.METHOD,
        "SGLang asks our policy here",
        ("batch_size",),
    ),
    Touch(
        _WORKER,
        "EAGLEWorkerV2.build_adaptive_runtime_state",
        Kind.METHOD,
        "SGLang builds a tier here",
        ("speculative_num_steps", "speculative_num_draft_tokens", "cuda_graph_bs"),
    ),
    Touch(
        _WORKER,
        "EAGLEWorkerV2.apply_runtime_state",
        Kind.METHOD,
        "SGLang switches here",
        ("state",),
    ),
    Touch(
        _WORKER,
        "EAGLEWorkerV2.speculative_num_steps",
        Kind.ATTRIBUTE,
        "what a rank really runs",
    ),
    # The scheduler: commands in, numbers out.
    Touch(
        _SCHEDULER,
        "Scheduler.get_init_info",
        Kind.METHOD,
        "publishes a rank's facts once it is built",
        (),
        "before",
    ),
    Touch(
        _SCHEDULER,
        "Scheduler.run_batch",
        Kind.METHOD,
        "counts launched steps and marks their results with the tier",
        ("batch",),
        "around",
    ),
    Touch(
        _SCHEDULER,
        "Scheduler.process_batch_result",
        Kind.METHOD,
        "counts tokens and accepted drafts, publishes",
        ("batch", "result"),
        "after",
    ),
    Touch(
        _SCHEDULER,
        "Scheduler.on_idle",
        Kind.METHOD,
        "publishes while nothing runs",
        (),
        "before",
    ),
    Touch(
        _SCHEDULER,
        "Scheduler.set_internal_state",
        Kind.METHOD,
        "takes our commands out of the broadcast",
        ("recv_req",),
        "around",
    ),
    *_rows(
        _SCHEDULER,
        "load and KV numbers",
        Kind.ATTRIBUTE,
        (
            "Scheduler.running_batch",
            "Scheduler.waiting_queue",
            "Scheduler.chunked_req",
            "Scheduler.grammar_manager",
            "Scheduler.max_running_requests",
            "Scheduler.max_total_num_tokens",
            "Scheduler.page_size",
            "Scheduler.pool_stats_observer",
            "Scheduler.spec_algorithm",
            "Scheduler.server_args",
            "Scheduler.forward_stream_ctx",
            "Scheduler.device",
        ),
    ),
    Touch(
        _BATCH,
        "ScheduleBatch.retract_decode",
        Kind.METHOD,
        "counts retractions",
        None,
        "after",
    ),
    *_rows(
        _BATCH,
        "the batch at hand",
        Kind.ATTRIBUTE,
        (
            "ScheduleBatch.reqs",
            "ScheduleBatch.forward_mode",
            "ScheduleBatch.extend_num_tokens",
            "ScheduleBatch.chunked_req",
        ),
    ),
    *_rows(
        _FORWARD,
        "kind of batch",
        Kind.METHOD,
        ("ForwardMode.is_decode", "ForwardMode.is_extend"),
    ),
    *_rows(
        _RESULT,
        "results of a batch",
        Kind.ATTRIBUTE,
        (
            "GenerationBatchResult.num_correct_drafts_per_req_cpu",
            "GenerationBatchResult.can_run_cuda_graph",
        ),
    ),
    *_rows(
        _POOL,
        "KV numbers",
        Kind.ATTRIBUTE,
        (
            "PoolStats.full_num_used",
            "PoolStats.full_available_size",
            "PoolStats.full_evictable_size",
        ),
    ),
    Touch(_POOL, "SchedulerPoolStatsObserver.get_pool_stats", Kind.METHOD, "KV numbers", ()),
    Touch(_SIZING, "get_alloc_reserve_per_decode", Kind.FUNCTION, "KV reserve per request"),
    *_rows(
        _CONTEXT,
        "resolved settings",
        Kind.FUNCTION,
        ("get_parallel", "get_spec"),
    ),
    # The HTTP process: routes, and the way of a command to the ranks.
    *_rows(
        _HTTP,
        "mounts /speculation",
        Kind.MODULE_NAME,
        ("app",),
    ),
    Touch(_HTTP, "get_global_state", Kind.FUNCTION, "finds the tokenizer manager", ()),
    Touch(_HTTP, "_GlobalState.tokenizer_manager", Kind.ATTRIBUTE, "sends commands"),
    Touch(
        _CONTROL,
        "TokenizerControlMixin.set_internal_state",
        Kind.METHOD,
        "broadcasts a command to all ranks",
        ("obj",),
    ),
    *_rows(
        _MESSAGES,
        "a command and its answer",
        Kind.ATTRIBUTE,
        ("SetInternalStateReq.server_args", "SetInternalStateReqOutput.updated"),
    ),
    Touch(
        _AUTH, "AuthLevel.ADMIN_OPTIONAL", Kind.ATTRIBUTE, "protects PUT like other admin routes"
    ),
)
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
    sources: dict[str, _Module | str] = {}
    mismatches = []
    # TABLE is looked up at the call, not bound as a default: it is one table for everybody.
    for touch in TABLE if table is None else table:
        if touch.module not in sources:
            sources[touch.module] = _read(root, touch.module)
        module = sources[touch.module]
        problem = module if isinstance(module, str) else module.problem(touch)
        if problem and problem not in mismatches:
            mismatches.append(problem)
    return Verdict(engine_version() if version is None else version, tuple(mismatches))


def _read(root: Path, module: str) -> _Module | str:
    parts = module.split(".")[1:]
    file = root.joinpath(*parts).with_suffix(".py")
    if not file.is_file():
        file = root.joinpath(*parts, "__init__.py")
    try:
        return _Module(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return f"module {module} cannot be read"


_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class _Class:
    methods: dict[str, _Function] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    bases: tuple[str, ...] = ()


class _Module:
    """Names defined by one source file."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: set[str] = set()
        self.functions: dict[str, _Function] = {}
        self.classes: dict[str, _Class] = {}
        for node in tree.body:
            if isinstance(node, _Function):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = _describe(node)
            else:
                self.names |= set(_assigned(node))

    def problem(self, touch: Touch) -> str:
        """What is wrong with a touched name, "" if nothing."""
        owner, _, member = touch.name.rpartition(".")
        if touch.kind is Kind.MODULE_NAME:
            return "" if touch.name in self.names else f"{touch.path} is gone"
        if touch.kind is Kind.FUNCTION:
            found = self.functions.get(touch.name)
            return _compare(touch, found, bound=False)
        if touch.kind is Kind.CLASS:
            return "" if touch.name in self.classes else f"class {touch.path} is gone"
        if owner not in self.classes:
            return f"class {touch.module}.{owner} is gone"
        if touch.kind is Kind.METHOD:
            return _compare(touch, self._method(owner, member), bound=True)
        return "" if self._has(owner, member) else f"attribute {touch.path} is gone"

    def _method(self, owner: str, name: str) -> _Function | None:
        for known in self._line(owner):
            if name in known.methods:
                return known.methods[name]
        return None

    def _has(self, owner: str, name: str) -> bool:
        return any(name in c.attributes or name in c.methods for c in self._line(owner))

    def _line(self, owner: str) -> Iterator[_Class]:
        known = self.classes.get(owner)
        if known is not None:
            yield known
            for base in known.bases:
                yield from self._line(base)


def _compare(touch: Touch, found: _Function | None, *, bound: bool) -> str:
    if found is None:
        return f"{touch.kind} {touch.path} is gone"
    if touch.params is None:
        return ""
    given = [*found.args.posonlyargs, *found.args.args][1 if bound else 0 :]
    names = tuple(parameter.arg for parameter in given)
    free = len(names) - len(found.args.defaults)
    wanted = len(touch.params)
    if names[:wanted] == touch.params and free <= wanted:
        return ""
    return (
        f"{touch.kind} {touch.path} takes ({', '.join(names)}) "
        f"where ({', '.join(touch.params)}) was expected"
    )


def _describe(node: ast.ClassDef) -> _Class:
    known = _Class(bases=tuple(base.id for base in node.bases if isinstance(base, ast.Name)))
    for item in node.body:
        if isinstance(item, _Function):
            known.methods[item.name] = item
            known.attributes |= set(_set_on_self(item))
        else:
            known.attributes |= set(_assigned(item))
    return known


def _assigned(node: ast.AST) -> Iterator[str]:
    for target in _targets(node):
        if isinstance(target, ast.Name):
            yield target.id


def _set_on_self(function: _Function) -> Iterator[str]:
    for node in ast.walk(function):
        for target in _targets(node):
            if (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            ):
                yield target.attr


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
    elif isinstance(node, ast.AnnAssign):
        yield node.target
