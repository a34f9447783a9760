"""Whether an engine can be measured now: each refusal says what to do."""

from __future__ import annotations

import asyncio
import shlex

from controlplane.benchrun_messages import BenchRequest
from controlplane.capabilities import observing_only
from controlplane.controller import other_holder
from controlplane.errors import ProblemError
from controlplane.load_prompts import PromptsError, make
from controlplane.runner import Runner
from store.observations import EngineFacts, Gap, Sample

LOOKS = 3
"""Polls in a row that must see an idle engine before it is measured."""
MOST_LOOKS = 14
"""Polls until it is refused: an engine that has just lost its last caller takes a moment."""
LOOK_S = 0.15
ANSWER_S = 5.0


async def check(runner: Runner, request: BenchRequest, *, read_files: bool) -> EngineFacts:
    """The facts of an engine that can be measured as asked.

    Args:
        read_files: whether prompts may be read from files of this machine.

    Raises:
        ProblemError: 409, it is not there, read-only, overridden, held by another or in use; 422,
            the request is not possible on it.
    """
    engine_id, facts = runner.engine_id, runner.pilot.facts
    if facts is None:
        raise ProblemError(409, "not_reached", f"engine {engine_id} has not answered yet")
    barred = observing_only(facts)
    if barred is not None:
        raise ProblemError(
            409,
            "read_only",
            f"engine {engine_id} is read-only: {barred}. Measure two servers instead: "
            "specdeck bench servers --plain URL --spec URL",
        )
    built = [tier.name for tier in facts.tiers]
    strangers = [tier for tier in request.tiers or () if tier not in built]
    if strangers:
        raise ProblemError(
            422,
            "not_possible",
            f"tier {', '.join(strangers)} was not built; built are: {', '.join(built)}",
        )
    if not built:
        raise ProblemError(409, "no_tiers", f"engine {engine_id} names no built tier")
    in_force = runner.pilot.override
    if in_force is not None:
        raise ProblemError(
            409,
            "override_in_force",
            f'override "{in_force.reason}" by {in_force.author} is in force: release it first',
        )
    await _check_prompts(request, read_files)
    await _check_free(runner, request)
    return facts


async def _check_prompts(request: BenchRequest, read_files: bool) -> None:
    from_file = request.prompts.partition(":")[0] in ("sharegpt", "lengths")
    if from_file and not read_files:
        raise ProblemError(
            422,
            "not_possible",
            "prompts from a file are read on the control plane's machine, and only where it needs "
            "no token: use builtin or ids",
        )
    try:
        await asyncio.to_thread(
            make, request.prompts, request.input_len, request.output_len, request.seed
        )
    except PromptsError as error:
        raise ProblemError(422, "not_possible", str(error)) from error


def _check_claim(runner: Runner, sample: Sample) -> None:
    other = other_holder(sample, runner.pilot.holder, runner.pilot.takeover_from)
    if other:
        raise ProblemError(
            409,
            "foreign_claim",
            f"engine {runner.engine_id} is held by {other} and would obey no tier of ours: wait, "
            f"or take it: specdeck fleet takeover {shlex.quote(runner.engine_id)} --holder "
            f"{shlex.quote(sample.claim_holder or '')} --reason TEXT",
        )


async def _check_free(runner: Runner, request: BenchRequest) -> None:
    seq, idle, busy = 0, 0, 0
    for _ in range(MOST_LOOKS):
        runner.wake()
        try:
            async with asyncio.timeout(ANSWER_S):
                tick = await runner.next_tick(seq)
        except TimeoutError:
            raise ProblemError(
                409, "not_reached", f"engine {runner.engine_id} is not polled; see /readyz"
            ) from None
        seen = tick.observation
        seq = seen.seq
        if isinstance(seen, Gap):
            raise ProblemError(
                409, "not_reached", f"engine {runner.engine_id} does not answer: {seen.message}"
            )
        _check_claim(runner, seen)
        there = (seen.concurrency or 0) + (seen.queued or 0) + (seen.prefilling or 0)
        idle, busy = (0, there) if there else (idle + 1, busy)
        if idle >= LOOKS or request.allow_traffic:
            return
        await asyncio.sleep(LOOK_S)
    raise ProblemError(
        409,
        "traffic",
        f"engine {runner.engine_id} serves {busy} requests now; a benchmark would slow them down "
        "and they would spoil it: take the traffic away, or say allow_traffic (--allow-traffic)",
    )
