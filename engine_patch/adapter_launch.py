"""What the user asked for at launch, and which tiers are built from it.

Runs in the first process, while SGLang resolves its arguments; the plan reaches the ranks as an
environment variable.  Knows SGLang's names, imports none of it but inside functions.

Everything that SGLang sizes once (request rows, eager buffers, the relay between batches) takes the
topk of the launch tier, so the launch tier must have the largest; tiers with a larger one are left
out with the flags that would let them in.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from engine_patch.tier import OFF, TierName, TierShape

TIERS_VARIABLE = "SPECDECK_TIERS"
"""The user's list, for example ``off,s1k1d2,s3k1d4,s2k4d16``."""
LIMITS_VARIABLE = "SPECDECK_TIER_MAX_BATCH"
"""Largest batch of single tiers, for example ``s2k4d16=16,s3k1d4=128``."""
BUILT_VARIABLE = "SPECDECK_ENGINE_TIERS"
"""The plan in use, handed from the first process to the ranks; not for users."""
DEFAULT_STEPS = (0, 1)
"""Built beside the launch tier if nothing else is said: off, and the shortest chain."""

_PARAMS = "sglang.srt.speculative.adaptive_spec_params"


@dataclass(frozen=True, slots=True)
class Plan:
    """The tiers of an engine.

    Args:
        tiers: from quietest (fewest verified tokens) to widest.
        launch: the tier the server starts with; it has the largest topk.
        left_out: tiers that were asked for and cannot be built, with the reason.
        limits: largest batch of a tier, where it has a limit of its own.
    """

    tiers: tuple[TierName, ...]
    launch: TierName
    left_out: tuple[tuple[TierName, str], ...] = ()
    limits: Mapping[TierName, int] = field(default_factory=dict)

    @property
    def shapes(self) -> tuple[TierShape, ...]:
        """The tiers' numbers, in their order."""
        return tuple(TierShape.parse(name) for name in self.tiers)

    @property
    def topk_max(self) -> int:
        """Candidates per request that travel from one batch to the next."""
        return max(shape.topk for shape in self.shapes)

    @property
    def trees(self) -> bool:
        """Whether a tier has topk above 1."""
        return self.topk_max > 1

    def dump(self) -> str:
        """The plan as the text of an environment variable."""
        return json.dumps(
            {
                "tiers": self.tiers,
                "launch": self.launch,
                "left_out": self.left_out,
                "limits": dict(self.limits),
            }
        )

    @classmethod
    def load(cls, text: str) -> Self:
        """Read what ``dump`` wrote.

        Raises:
            ValueError: the text is no plan.
        """
        try:
            said = json.loads(text)
            return cls(
                tiers=tuple(said["tiers"]),
                launch=said["launch"],
                left_out=tuple((name, reason) for name, reason in said["left_out"]),
                limits={name: int(most) for name, most in said["limits"].items()},
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no plan: {text!r}") from error


def chain(steps: int) -> TierShape:
    """The chain of ``steps`` draft steps, ``off`` for 0."""
    return TierShape(num_steps=steps, topk=1, num_draft_tokens=steps + 1)


def parse(text: str) -> tuple[TierShape, ...]:
    """Read a list of tiers.

    Raises:
        ValueError: an entry is no tier, or nothing is listed.
    """
    shapes = tuple(TierShape.parse(part.strip()) for part in text.split(",") if part.strip())
    if not shapes:
        raise ValueError("no tier is listed")
    return shapes


def parse_limits(text: str) -> dict[TierName, int]:
    """Read the largest batches of tiers.

    Raises:
        ValueError: an entry is no ``TIER=BATCH``, or limits off, which must take any batch.
    """
    limits = {}
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        name, _, most = part.partition("=")
        shape = TierShape.parse(name.strip())
        if not most.strip().isdecimal() or int(most) < 1:
            raise ValueError(f"{part!r} is no limit: write for example 's2k4d16=16'")
        if shape.name == OFF:
            raise ValueError("off takes every batch: it cannot be limited")
        limits[shape.name] = int(most)
    return limits


def flags_shape(steps: int | None, topk: int | None, tokens: int | None) -> TierShape | None:
    """The launch shape that the flags give, None if they leave it open.

    Raises:
        ValueError: the shape cannot exist.
    """
    if steps is None:
        return None
    if (topk or 1) == 1:
        # SGLang's adaptive mode sets the draft tokens of a chain by itself.
        return chain(steps)
    if tokens is None:
        return None
    return TierShape(num_steps=steps, topk=topk or 1, num_draft_tokens=tokens)


def plan(
    text: str | None,
    config_steps: Iterable[int] | None,
    flags: TierShape | None,
    limits: Mapping[TierName, int] | None = None,
) -> Plan:
    """Decide the tiers: the user's list, else SGLang's own configuration, else a default.

    The launch tier is always among them.

    Args:
        text: value of ``SPECDECK_TIERS``.
        config_steps: candidate steps of ``--speculative-adaptive-config``.
        flags: the shape that ``--speculative-num-steps`` and its neighbours ask for.
        limits: of ``SPECDECK_TIER_MAX_BATCH``.
    """
    if text is not None:
        asked = parse(text)
    elif config_steps is not None:
        asked = tuple(chain(steps) for steps in config_steps)
    else:
        asked = tuple(chain(steps) for steps in DEFAULT_STEPS)
        if flags is None:
            asked += (chain(3),)
    if flags is not None and flags.name != OFF:
        asked += (flags,)
    shapes = {shape.name: shape for shape in asked}
    if all(name == OFF for name in shapes):
        # Something must speculate, else SGLang has no launch tier.
        shapes["s1k1d2"] = chain(1)
    launch = _launch(tuple(shapes.values()), flags)
    left_out = tuple(
        (name, _too_wide(shape, launch))
        for name, shape in shapes.items()
        if shape.topk > launch.topk
    )
    kept = {name: shape for name, shape in shapes.items() if shape.topk <= launch.topk}
    order = sorted(kept, key=lambda name: (kept[name].num_draft_tokens, kept[name].num_steps))
    return Plan(
        tiers=tuple(order),
        launch=launch.name,
        left_out=left_out,
        limits={name: most for name, most in (limits or {}).items() if name in kept},
    )


def _launch(shapes: tuple[TierShape, ...], flags: TierShape | None) -> TierShape:
    if flags is not None and flags.name != OFF:
        return flags
    if all(shape.topk == 1 for shape in shapes):
        # What SGLang takes without flags: the middle of the step counts.
        steps = sorted(shape.num_steps for shape in shapes)
        middle = steps[len(steps) // 2]
        return chain(middle or max(steps))
    return max(shapes, key=lambda shape: (shape.topk, shape.num_draft_tokens))


def _too_wide(shape: TierShape, launch: TierShape) -> str:
    return (
        f"tier {shape.name} has topk {shape.topk}, the launch tier {launch.name} only "
        f"{launch.topk}: start with --speculative-num-steps {shape.num_steps} "
        f"--speculative-eagle-topk {shape.topk} "
        f"--speculative-num-draft-tokens {shape.num_draft_tokens}"
    )


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
    return Plan.load(text) if text else None


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
    if not known.trees:
        reason = original(server_args)
    elif getattr(server_args, "speculative_use_rejection_sampling", False):
        reason = (
            "rejection sampling is not supported with topk above 1 (the relayed draft "
            "probabilities belong to one candidate)"
        )
    else:
        reason = _asked_as_a_chain(original, server_args)
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


def _asked_as_a_chain(original: Callable[[Any], str | None], server_args: Any) -> str | None:
    module: Any = importlib.import_module(_PARAMS)
    if not hasattr(module, "resolving_view"):
        # 0.5.17: the arguments themselves are read, and can still be written here.
        given = server_args.speculative_eagle_topk
        server_args.speculative_eagle_topk = 1
        try:
            return original(server_args)
        finally:
            server_args.speculative_eagle_topk = given
    view = module.resolving_view
    module.resolving_view = lambda given: _AsAChain(view(given))
    try:
        return original(server_args)
    finally:
        module.resolving_view = view


class _AsAChain:
    """SGLang's view of its arguments, with topk 1."""

    speculative_eagle_topk = 1

    def __init__(self, view: Any) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


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
