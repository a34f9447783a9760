"""What the user asked for at launch, and which tiers are built from it.

Runs in the first process, while SGLang resolves its arguments; the list of tiers reaches the ranks
as an environment variable.  Knows SGLang's names, imports none of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine_patch.tier import OFF, TierName, TierShape

TIERS_VARIABLE = "SPECDECK_TIERS"
"""The user's list, for example ``off,s1k1d2,s3k1d4``."""
BUILT_VARIABLE = "SPECDECK_ENGINE_TIERS"
"""The list in use, handed from the first process to the ranks; not for users."""
DEFAULT_STEPS = (0, 1)
"""Built beside the launch tier if nothing else is said: off, and the shortest chain."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The tiers of an engine.

    Args:
        tiers: from quietest (fewest verified tokens) to widest.
        left_out: tiers that were asked for and cannot be built, with the reason.
    """

    tiers: tuple[TierName, ...]
    left_out: tuple[tuple[TierName, str], ...] = ()

    @property
    def steps(self) -> list[int]:
        """Step counts, rising: SGLang's adaptive states are keyed by them."""
        return sorted(TierShape.parse(tier).num_steps for tier in self.tiers)


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


def plan(text: str | None, config_steps: Iterable[int] | None, launch_steps: int | None) -> Plan:
    """Decide the tiers: the user's list, else SGLang's own configuration, else a default.

    The launch tier is always among them.

    Args:
        text: value of ``SPECDECK_TIERS``.
        config_steps: candidate steps of ``--speculative-adaptive-config``.
        launch_steps: ``--speculative-num-steps``, None if it was not given.
    """
    if text is not None:
        asked = parse(text)
    elif config_steps is not None:
        asked = tuple(chain(steps) for steps in config_steps)
    else:
        asked = tuple(chain(steps) for steps in DEFAULT_STEPS)
        if launch_steps is None:
            asked += (chain(3),)
    if launch_steps is not None:
        asked += (chain(launch_steps),)
    trees = {shape.name: shape for shape in asked if shape.topk > 1}
    chains = {shape.name: shape for shape in asked if shape.topk == 1}
    if all(name == OFF for name in chains):
        # Something must speculate, else SGLang has no launch tier.
        chains["s1k1d2"] = chain(1)
    return Plan(
        tiers=tuple(sorted(chains, key=lambda name: chains[name].num_draft_tokens)),
        left_out=tuple(
            (name, f"tier {name} has topk {shape.topk}; this version builds chains (topk 1) only")
            for name, shape in trees.items()
        ),
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
    max_running_requests: int | None = None
    turned_off: str = ""


_asked: Asked | None = None


def asked() -> Asked | None:
    """What was asked for in this process; None before SGLang resolved its arguments."""
    return _asked


def note_arguments(server_args: Any) -> None:
    """Before ``handle_speculative_decoding``: keep the flags as given."""
    global _asked
    _asked = Asked(
        algorithm=server_args.speculative_algorithm,
        adaptive=bool(server_args.speculative_adaptive),
        num_steps=server_args.speculative_num_steps,
        max_running_requests=server_args.max_running_requests,
    )
    os.environ.pop(BUILT_VARIABLE, None)


def note_reason(reason: str | None, *_: Any, **__: Any) -> None:
    """After ``adaptive_unsupported_reason``: keep why switching is not possible."""
    if _asked is not None:
        _asked.turned_off = reason or ""


def candidate_steps(original: Callable[..., list[int]], cfg_path: str | None = None) -> list[int]:
    """Around ``resolve_candidate_steps_from_config``: the step counts of our tiers.

    SGLang sizes buffers by the largest of them, so this is asked for long before a tier is built.
    """
    built = os.environ.get(BUILT_VARIABLE)
    if built is None:
        text = os.environ.get(TIERS_VARIABLE)
        config = original(cfg_path) if text is None and cfg_path is not None else None
        tiers = plan(text, config, _asked.num_steps if _asked else None).tiers
        built = os.environ[BUILT_VARIABLE] = ",".join(tiers)
    return sorted(shape.num_steps for shape in parse(built))


def left_out() -> tuple[tuple[TierName, str], ...]:
    """Tiers of ``SPECDECK_TIERS`` that cannot be built."""
    text = os.environ.get(TIERS_VARIABLE)
    return plan(text, None, None).left_out if text is not None else ()
