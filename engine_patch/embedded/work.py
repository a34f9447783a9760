"""Fixed work on unpaced virtual time: what a fixed mode would have done with the same requests.

A phases file is ``{"phases": [{"concurrency": 4, "requests": [[prompt, output], ...]}, ...]}``:
each phase is a list of requests done by ``concurrency`` closed-loop clients; the next phase starts
when all requests of the last are answered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from engine_patch.embedded.closed_loop import run_closed_loop
from engine_patch.embedded.core import Engine
from engine_patch.tier import Frozen

Tokens = Annotated[int, Field(ge=1)]


class Phase(Frozen):
    """Requests as (prompt tokens, output tokens), and the clients that do them."""

    concurrency: int = Field(ge=1)
    requests: tuple[tuple[Tokens, Tokens], ...] = Field(min_length=1)


class Phases(Frozen):
    """A phases file."""

    phases: tuple[Phase, ...] = Field(min_length=1)


class PhaseDone(Frozen):
    """What a phase took, in virtual seconds."""

    concurrency: int
    requests: int
    tokens: int
    seconds: float
    tok_s: float
    mean_latency_s: float


def read_phases(path: Path) -> Phases:
    """Read a phases file.

    Raises:
        OSError, pydantic.ValidationError: it cannot be read, or says something else.
    """
    return Phases.model_validate_json(path.read_bytes())


def run_phases(
    engine: Engine, phases: Phases, *, turnaround_ms: float = 0.0
) -> tuple[PhaseDone, ...]:
    """Do the phases one after the other on one engine."""
    results = []
    for phase in phases.phases:
        done = run_closed_loop(
            engine, phase.requests, phase.concurrency, turnaround_ms=turnaround_ms
        )
        results.append(
            PhaseDone(
                concurrency=phase.concurrency,
                requests=done.requests,
                tokens=done.tokens,
                seconds=round(done.seconds, 6),
                tok_s=round(done.tok_s, 3),
                mean_latency_s=round(done.mean_latency_s, 6),
            )
        )
    return tuple(results)
