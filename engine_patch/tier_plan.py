"""Which tiers an engine builds, from what was asked for at launch.  Pure.

Everything that SGLang sizes once (request rows, eager buffers, the relay between batches) takes the
topk of the launch tier, so the launch tier must have the largest; tiers with a larger one are left
out with the flags that would let them in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from engine_patch.tier import OFF, TierName, TierShape

DEFAULT_STEPS = (0, 1)
"""Built beside the launch tier if nothing else is said: off, and the shortest chain."""


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
