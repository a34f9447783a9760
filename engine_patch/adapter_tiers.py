"""Our controller in place of SGLang's ``AdaptiveController``: builds the tiers, switches them.

SGLang's controller keys states by their step count; ours by tier, so that tiers may differ in topk
and draft tokens as well.  SGLang asks it at the head of each decode batch, and that is the only
place where a tier changes (or an idle moment, where nothing runs).

The tier chosen for a batch may need more KV slots than were reserved for it, or more candidates
than the batch before looked for.  Then the batch still runs the tier before, the new one is
announced, the next reserve and the candidates follow it, and the next batch runs it.  A tier that
needs no more takes effect at once.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine_patch import adapter_launch, adapter_room, adapter_sglang
from engine_patch.chooser import Chooser
from engine_patch.contract_words import OffFlavour, OffKind
from engine_patch.tier import OFF, TierName, TierShape
from engine_patch.tier_plan import Plan

log = logging.getLogger("specdeck")

COLD_VARIABLE = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
"""SGLang's own switch for a cold off; it skips what our flavours hang on."""


@dataclass(frozen=True, slots=True)
class BuildCost:
    """What building one tier took; None where it was not measured."""

    build_s: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What the present decode batch runs.

    Args:
        flavour: of an off round, None for a speculating one.
        bridge: an off round with a whole draft-extend, after which a draft has real candidates.
    """

    tier: TierName
    flavour: OffFlavour | None = None
    bridge: bool = False

    @property
    def leaves_stale(self) -> bool:
        """Whether the drafter ends this round without candidates for a draft."""
        return self.flavour in (OffFlavour.KEEP, OffFlavour.COLD)


def cold_by_environment() -> bool:
    """Whether SGLang itself skips draft-extend while off."""
    return adapter_sglang.environment_says(COLD_VARIABLE)


def reads_server_args(function: Callable[..., Any]) -> bool:
    """Whether a function of SGLang takes the server arguments (0.5.17)."""
    try:
        return "server_args" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


class TierController:
    """Owns the tiers of one rank.

    Args:
        worker: SGLang's ``EAGLEWorkerV2``.
        policy: what SGLang would have decided with; not used.
        config_path: of SGLang's own configuration; taken over at launch.
    """

    def __init__(self, worker: Any, policy: Any = None, config_path: str | None = None) -> None:
        del policy, config_path
        self.worker = worker
        self.topk_max = int(worker.topk)
        launch = TierShape(
            num_steps=worker.speculative_num_steps,
            topk=worker.topk,
            num_draft_tokens=worker.speculative_num_draft_tokens,
        ).name
        plan = adapter_launch.in_force() or Plan(tiers=(launch,), launch=launch)
        self.launch: TierName = launch
        self.limits = dict(plan.limits)
        self.planned = plan.tiers if launch in plan.tiers else (launch,)
        self.left_out: dict[TierName, str] = dict(plan.left_out)
        if launch not in plan.tiers:
            self.left_out |= dict.fromkeys(
                (name for name in plan.tiers if name != launch),
                f"the server runs {launch}, which is not the launch tier {plan.launch} it planned",
            )
        self.states: dict[TierName, Any] = {}
        self.costs: dict[TierName, BuildCost] = {}
        self.active = self.announced = launch
        self.round = Round(launch)
        self.relayed = self.topk_max
        """Candidates per request that the present round hands on to the next."""
        self.building: TierName | None = None
        self.chooser: Chooser | None = None
        """Set once the rank is complete, and only where it may switch."""
        self.free_slots: Callable[[], int] | None = None
        self.ready = False
        self.fault = ""
        self.bridges = 0
        from engine_patch import adapter_reserve

        self.reserve = adapter_reserve.wanted()
        self.off: Any = None
        """How off runs; known once the worker is complete."""
        self._stale = False
        _set(self)

    @property
    def tiers(self) -> tuple[TierName, ...]:
        """The tiers that were built, from quietest to widest."""
        return tuple(name for name in self.planned if name in self.states)

    # Start-up.

    def register(self, state: Any, steps: int | None = None) -> None:
        """The launch tier, already built by SGLang."""
        del steps
        from engine_patch import adapter_off

        self.states[self.launch] = state
        self.off = adapter_off.Off(self.worker)

    def init_states(self, cuda_graph_bs: list[int] | None = None) -> None:
        """Build the other tiers."""
        sizes = sorted(cuda_graph_bs) if cuda_graph_bs else []
        for name in self.planned:
            if name not in self.states:
                self._build(TierShape.parse(name), sizes)
        if OFF in self.states:
            from engine_patch import adapter_flavour

            adapter_flavour.try_keep(self.off, self.worker._draft_worker)
        self.ready = True
        log.info(
            "specdeck: tiers built: %s; off runs as %s",
            ", ".join(self.tiers),
            self.off.kind if OFF in self.states else "-",
        )

    def _build(self, shape: TierShape, sizes: list[int]) -> None:
        name = shape.name
        mine = adapter_room.pruned(sizes, self.limits.get(name))
        reason = adapter_room.missing(self.worker, shape, mine)
        if reason:
            log.warning("specdeck: tier left out: %s", reason)
            self.left_out[name] = reason
            return
        free, begin = adapter_sglang.free_memory(), time.perf_counter()
        self.building = name
        try:
            with self.off.plain_runner() if name == OFF else contextlib.nullcontext():
                self.states[name] = self.worker.build_adaptive_runtime_state(
                    speculative_num_steps=shape.num_steps,
                    speculative_num_draft_tokens=shape.num_draft_tokens,
                    cuda_graph_bs=mine or None,
                )
        except Exception:
            # SGLang ends the server; its message names a capture, not the tier it was for.
            log.error(
                "specdeck: tier %s could not be built, as follows; %s=%s=N keeps it to batches "
                "of N requests, without it in SPECDECK_TIERS the server starts",
                name,
                adapter_launch.LIMITS_VARIABLE,
                name,
            )
            raise
        finally:
            self.building = None
        after = adapter_sglang.free_memory()
        self.costs[name] = BuildCost(
            build_s=round(time.perf_counter() - begin, 3),
            memory_bytes=None if free is None or after is None else max(0, free - after),
        )

    # Run time.

    def activate_step_by_batch(self, batch_size: int) -> None:
        """SGLang is at the head of a decode batch."""
        chooser = self.chooser
        if chooser is None or batch_size < 1:
            return
        wanted = self.active
        if not self.fault:
            try:
                wanted = chooser.next_tier(batch_size, free_slots=self.free_slots)
            except Exception as error:  # noqa: BLE001  # a decode batch must not fail of us
                # The inputs are the same on all ranks, so all of them stop at the same batch.
                self.fault = f"the policy failed and keeps {self.active}: {error!r}"
        self._begin_round(wanted, chooser.off_flavour)

    def on_verify_complete(
        self, num_correct_drafts_per_req: list[int], batch_size: int = 0
    ) -> None:
        """Results are taken where they can be told apart (see ``adapter_rank``)."""

    def settle(self, tier: TierName) -> bool:
        """Activate a tier while nothing runs; whether anything changed."""
        self._stale = False
        if tier == self.active == self.announced:
            return False
        self.announced = tier
        self._activate(tier)
        self.round = Round(tier, self.off.flavour(None) if tier == OFF else None)
        self.relayed = self.topk_max  # of a prefill, which comes next
        return True

    def _begin_round(self, wanted: TierName, flavour: OffFlavour | None) -> None:
        if wanted == self.announced == self.round.tier != OFF:
            self.relayed = topk_of(wanted)  # most rounds: the tier of the round before
            return
        from engine_patch.adapter_reserve import NEXT, length_of

        # What was reserved for this batch, by ``adapter_reserve.alloc_len``.
        reserved = max(length_of(self.active), length_of(self.announced))
        self.announced = wanted
        fits = self.reserve != NEXT or length_of(wanted) <= reserved
        tier = wanted if fits and self.can_draft(wanted) else self.active
        # An off round that waits for slots is the bridge itself, so that a move up from off takes
        # two rounds whatever it needs; also where it is the first since the engine was idle, which
        # left nothing stale but would do so now.
        present = Round(tier, self.off.flavour(flavour) if tier == OFF else None)
        needed = wanted != OFF and (self._stale or present.leaves_stale)
        if needed and OFF in self.states and not cold_by_environment():
            present = Round(OFF, OffFlavour.WARM, bridge=True)
            self.bridges += 1
        self._activate(present.tier)
        self.round = present
        self._stale = present.leaves_stale
        speculating = present.tier != OFF
        self.relayed = max(topk_of(present.tier), topk_of(wanted)) if speculating else self.topk_max

    def can_draft(self, tier: TierName) -> bool:
        """Whether the round before looked for as many candidates as a tier drafts from."""
        return topk_of(tier) <= self.relayed

    def _activate(self, tier: TierName) -> None:
        if tier == self.active:
            return
        worker, state = self.worker, self.states[tier]
        topk = topk_of(tier)
        # Before the chain buffers are made anew, which check it against the step count.
        worker.topk = worker._draft_worker.topk = topk
        if worker.speculative_num_steps == state.speculative_num_steps:
            # SGLang does nothing when the step count is the same; this one never is.
            worker.speculative_num_steps = None
        worker.apply_runtime_state(state)
        adapter_sglang.forget_switch()
        self.active = tier


@functools.cache
def topk_of(tier: TierName) -> int:
    """Candidates per request that a tier drafts from; 1 for off."""
    return TierShape.parse(tier).topk


def off_kind_of(tiers: TierController | None) -> OffKind:
    """How off runs."""
    if tiers is None or tiers.off is None:
        return OffKind.ONE_TOKEN_VERIFY
    kind: OffKind = tiers.off.kind
    return kind


_controller: TierController | None = None


def _set(controller: TierController | None) -> None:
    global _controller
    _controller = controller


def controller() -> TierController | None:
    """The controller of this process; None on a server without ``--speculative-adaptive``."""
    return _controller
