"""Our policy in place of SGLang's ``AdaptiveSpeculativeParams``, and what a tier costs to build.

SGLang asks it for the step count at the head of each decode batch and tells it about results when
they arrive, which with the overlap loop is one batch later; so the policy answers the first and
ignores the second (results are taken where they can be told apart, see ``adapter_rank``).  It never
switches on a result, only at the head of a batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine_patch.adapter_launch import BUILT_VARIABLE, chain, parse
from engine_patch.chooser import Chooser
from engine_patch.tier import TierName


@dataclass(frozen=True, slots=True)
class BuildCost:
    """What building one tier took; None where it was not measured."""

    build_s: float | None = None
    memory_bytes: int | None = None


class TierPolicy:
    """Implements SGLang's ``AdaptiveSpecPolicy``; the decision is the chooser's.

    Args:
        initial_steps: steps of the launch tier.
        cfg_path: SGLang's own configuration; its candidate steps were taken over at launch.
    """

    def __init__(self, initial_steps: int, cfg_path: str | None = None) -> None:
        del cfg_path
        shapes = {chain(initial_steps).name: chain(initial_steps)}
        for shape in parse(os.environ.get(BUILT_VARIABLE, "") or chain(initial_steps).name):
            shapes[shape.name] = shape
        self.launch_tier: TierName = chain(initial_steps).name
        self.steps: dict[TierName, int] = {
            name: shape.num_steps
            for name, shape in sorted(shapes.items(), key=lambda item: item[1].num_draft_tokens)
        }
        self.chooser: Chooser | None = None
        """Set once the rank is complete, and only where it may switch."""
        self.fault = ""
        self.controller: Any = None
        self.costs: dict[TierName, BuildCost] = {}
        self._graph_sizes: list[int] | None = None
        set_policy(self)

    @property
    def candidate_steps(self) -> list[int]:
        """Step counts of all tiers, rising."""
        return sorted(self.steps.values())

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        """Take the graph sizes of the server; None without graphs."""
        self._graph_sizes = sorted(cuda_graph_bs) if cuda_graph_bs else None

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        """Graph sizes to capture for a tier: all, since any tier may be commanded at any load."""
        del step
        return self._graph_sizes

    def get_steps_for_batch(self, batch_size: int) -> int:
        """Steps of the decode batch that is about to start."""
        chooser = self.chooser
        if chooser is None:
            return self.steps[self.launch_tier]
        if self.fault:
            return self.steps[chooser.tier]
        try:
            return self.steps[chooser.next_tier(batch_size)]
        except Exception as error:  # noqa: BLE001  # a decode batch must not fail because of us
            # The inputs are the same on all ranks, so all of them stop at the same batch.
            self.fault = f"the policy failed and keeps {chooser.tier}: {error!r}"
            return self.steps[chooser.tier]

    def on_verify_complete(
        self, num_correct_drafts_per_req: list[int], batch_size: int = 0
    ) -> int | None:
        """Never asks for a switch."""
        del num_correct_drafts_per_req, batch_size
        return None


_policy: TierPolicy | None = None


def set_policy(policy: TierPolicy | None) -> None:
    """Remember the policy of this process."""
    global _policy
    _policy = policy


def policy() -> TierPolicy | None:
    """The policy of this process; None on a server without ``--speculative-adaptive``."""
    return _policy


def measure_builds(
    original: Callable[..., None], controller: Any, *args: Any, **kwargs: Any
) -> None:
    """Around ``AdaptiveController.init_states``: time and memory of each tier SGLang builds."""
    mine = controller.params
    if not isinstance(mine, TierPolicy):
        original(controller, *args, **kwargs)
        return
    mine.controller = controller
    worker = controller.worker
    build = worker.build_adaptive_runtime_state
    names = {steps: name for name, steps in mine.steps.items()}

    def measured(speculative_num_steps: int, *more: Any, **named: Any) -> Any:
        free, begin = _free_memory(), time.perf_counter()
        state = build(speculative_num_steps, *more, **named)
        after = _free_memory()
        mine.costs[names[speculative_num_steps]] = BuildCost(
            build_s=round(time.perf_counter() - begin, 3),
            memory_bytes=None if free is None or after is None else max(0, free - after),
        )
        return state

    worker.build_adaptive_runtime_state = measured
    try:
        original(controller, *args, **kwargs)
    finally:
        del worker.build_adaptive_runtime_state


def _free_memory() -> int | None:
    try:
        import torch

        return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None
    except Exception:  # noqa: BLE001  # a number for information must not stop the start
        return None


def graph_sizes(state: Any) -> tuple[int, ...]:
    """Batch sizes with a captured verify graph of one of SGLang's runtime states."""
    runner = getattr(state, "target_graph_runner", None)
    return tuple(sorted(int(size) for size in getattr(runner, "capture_bs", None) or ()))
