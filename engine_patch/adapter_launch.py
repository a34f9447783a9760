"""What the user asked for at launch, and which tiers are built from it.

Runs in the first process, while SGLang resolves its arguments; the plan reaches the ranks as an
environment variable.  Knows SGLang's names, imports none of it but inside functions.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine_patch import adapter_sglang
from engine_patch.tier import TierName, TierShape
from engine_patch.tier_plan import Plan, flags_shape, parse_limits, plan

TIERS_VARIABLE = "SPECDECK_TIERS"
"""The user's list, for example ``off,s1k1d2,s3k1d4,s2k4d16``."""
LIMITS_VARIABLE = "SPECDECK_TIER_MAX_BATCH"
"""Largest batch of single tiers, for example ``s2k4d16=16,s3k1d4=128``."""
BUILT_VARIABLE = "SPECDECK_ENGINE_TIERS"
"""The plan in use, handed from the first process to the ranks; not for users."""
PLAN_STREAM_VARIABLE = "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"
"""SGLang's own: verify is prepared on a stream of its own."""
STANDALONE = "STANDALONE"
"""SGLang's name of a drafter that is a whole model of its own."""
_PARAMS = "sglang.srt.speculative.adaptive_spec_params"


@dataclass(slots=True)
class Asked:
    """The launch flags as the user gave them.

    Args:
        max_running_requests: None if the flag was not given.
        turned_off: why SGLang turned ``--speculative-adaptive`` off, "" if it did not.
    """

    algorithm: str | None = None
    adaptive: bool = False
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None
    max_running_requests: int | None = None
    turned_off: str = ""

    @property
    def shape(self) -> TierShape | None:
        """The launch shape of the flags, None if they leave it open or it cannot exist."""
        try:
            return flags_shape(self.num_steps, self.topk, self.num_draft_tokens)
        except ValueError:
            return None


_asked: Asked | None = None


def asked() -> Asked | None:
    """What was asked for in this process; None before SGLang resolved its arguments."""
    return _asked


def in_force() -> Plan | None:
    """The plan of this engine; None on a server that is not adaptive."""
    text = os.environ.get(BUILT_VARIABLE)
    return _read(text) if text else None


@functools.lru_cache(maxsize=2)
def _read(text: str) -> Plan:
    """SGLang asks for the reserve, hence for the plan, twice before every decode step."""
    return Plan.load(text)


def left_out() -> tuple[tuple[TierName, str], ...]:
    """Tiers that were asked for and are not built."""
    known = in_force()
    return known.left_out if known is not None else ()


def settle(config_steps: Callable[[], Iterable[int] | None] = lambda: None) -> Plan:
    """Decide the plan once; later calls give the same.

    Args:
        config_steps: reads the candidate steps of SGLang's own configuration file.
    """
    known = in_force()
    if known is None:
        text = os.environ.get(TIERS_VARIABLE)
        known = plan(
            text,
            None if text is not None else config_steps(),
            _asked.shape if _asked else None,
            parse_limits(os.environ.get(LIMITS_VARIABLE, "")),
        )
        os.environ[BUILT_VARIABLE] = known.dump()
    return known


# The hooks, with the signatures SGLang's registry gives them.


def note_arguments(server_args: Any) -> None:
    """Before ``handle_speculative_decoding``: keep the flags as given."""
    global _asked
    _asked = Asked(
        algorithm=server_args.speculative_algorithm,
        adaptive=bool(server_args.speculative_adaptive),
        num_steps=server_args.speculative_num_steps,
        topk=server_args.speculative_eagle_topk,
        num_draft_tokens=server_args.speculative_num_draft_tokens,
        max_running_requests=server_args.max_running_requests,
    )
    os.environ.pop(BUILT_VARIABLE, None)


def unsupported_reason(original: Callable[[Any], str | None], server_args: Any) -> str | None:
    """Around ``adaptive_unsupported_reason``: all of SGLang's refusals but the one for topk."""
    known = settle(lambda: _configured(server_args))
    standalone = server_args.speculative_algorithm == STANDALONE
    reason: str | None
    if adapter_sglang.environment_says(PLAN_STREAM_VARIABLE):
        # Within seconds of random commands, on an H200 (docs/gpu-results.md); without it, never.
        reason = (
            "switching with the overlap plan stream ended in an illegal memory access: unset "
            f"{PLAN_STREAM_VARIABLE}"
        )
    elif standalone and known.trees:
        reason = "a standalone drafter switches chains and off, a tree was not tried with it"
    elif standalone:
        # Its worker is EAGLE's with another drafter, and takes our controller (see attach).
        reason = _asked_as(original, server_args, speculative_algorithm="EAGLE")
    elif not known.trees:
        reason = original(server_args)
    elif getattr(server_args, "speculative_use_rejection_sampling", False):
        reason = (
            "rejection sampling is not supported with topk above 1 (the relayed draft "
            "probabilities belong to one candidate)"
        )
    else:
        reason = _asked_as(original, server_args, speculative_eagle_topk=1)
    if _asked is not None:
        _asked.turned_off = reason or ""
    if reason is not None:
        os.environ.pop(BUILT_VARIABLE, None)
    return reason


def _configured(server_args: Any) -> list[int] | None:
    path = server_args.speculative_adaptive_config
    if path is None:
        return None
    steps = getattr(
        importlib.import_module(_PARAMS).resolve_candidate_steps_from_config, "__wrapped__", None
    )
    return None if steps is None else list(steps(path))


def _asked_as(original: Callable[[Any], str | None], server_args: Any, **shown: Any) -> str | None:
    """SGLang's own answer if some arguments were others, so that its other refusals stay."""
    module: Any = importlib.import_module(_PARAMS)
    if not hasattr(module, "resolving_view"):
        # 0.5.17: the arguments themselves are read, and can still be written here.
        given = {name: getattr(server_args, name) for name in shown}
        try:
            for name, value in shown.items():
                setattr(server_args, name, value)
            return original(server_args)
        finally:
            for name, value in given.items():
                setattr(server_args, name, value)
    view = module.resolving_view
    module.resolving_view = lambda given: _Shown(view(given), shown)
    try:
        return original(server_args)
    finally:
        module.resolving_view = view


class _Shown:
    """SGLang's view of its arguments, with some shown as others."""

    def __init__(self, view: Any, shown: dict[str, Any]) -> None:
        self._view = view
        self._shown = shown

    def __getattr__(self, name: str) -> Any:
        return self._shown[name] if name in self._shown else getattr(self._view, name)


def init_params(original: Callable[[Any], None], server_args: Any) -> None:
    """Around ``_init_adaptive_speculative_params``, which would make every launch tier a chain."""
    known = settle(lambda: _configured(server_args))
    shape = TierShape.parse(known.launch)
    if shape.topk == 1:
        original(server_args)
        return
    values = {
        "speculative_num_steps": shape.num_steps,
        "speculative_eagle_topk": shape.topk,
        "speculative_num_draft_tokens": shape.num_draft_tokens,
    }
    overrides: Any = importlib.import_module("sglang.srt.arg_groups.overrides")
    declare = getattr(overrides, "declare_resolution", None)
    if declare is not None:
        declare(server_args, "specdeck", **values)
        return
    for name, value in values.items():
        setattr(server_args, name, value)


def candidate_steps(original: Callable[..., list[int]], cfg_path: str | None = None) -> list[int]:
    """Around ``resolve_candidate_steps_from_config``: sizes for the widest of our tiers.

    Its callers take the largest plus one as the bound of draft tokens, and steps plus one as the
    logits rows of a state, so they are given every tier's draft tokens less one.
    """
    known = settle(lambda: original(cfg_path) if cfg_path is not None else None)
    return sorted({shape.num_draft_tokens - 1 for shape in known.shapes})
