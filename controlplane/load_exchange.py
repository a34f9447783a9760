"""One request to ``/generate``: its bytes, made ahead, and what its answer says."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.load_http import BadAnswerError, Connection, DroppedError
from controlplane.load_plan import LoadPhase, Work

_TOKEN_IDS = tuple(str(number) for number in range(1000, 30_000))
"""Ids every vocabulary holds, special ones left out."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A request ready to be sent."""

    prompt_tokens: int
    stream: bool
    wire: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back.

    Args:
        first_s: when the first token was seen; None without streaming.
        output_tokens: 0 on a failure.
        accept_length, verify_steps: None where the engine does not tell or verified nothing.
        error: "" or why it failed.
    """

    first_s: float | None = None
    output_tokens: int = 0
    accept_length: float | None = None
    verify_steps: int | None = None
    error: str = ""


def make_shots(connection: Connection, phase: LoadPhase, work: Work, index: int) -> list[Shot]:
    """The requests of a phase as bytes.

    Prompts are token ids: the server needs no tokenizer, and no two prompts share a prefix.
    """
    generator = random.Random(f"{work.seed}/prompts/{index}")
    stream = "true" if work.stream else "false"
    shots = []
    for prompt, output in phase.requests:
        ids = ",".join(generator.choices(_TOKEN_IDS, k=prompt))
        body = (
            f'{{"input_ids":[{ids}],"stream":{stream},"sampling_params":'
            f'{{"temperature":0,"max_new_tokens":{output},"ignore_eos":true}}}}'
        )
        wire = connection.encode("POST", "/generate", body.encode())
        shots.append(Shot(prompt_tokens=prompt, stream=work.stream, wire=wire))
    return shots


async def send(
    connection: Connection, shot: Shot, timeout_s: float, now: Callable[[], float]
) -> Answered:
    """Send a request and wait for its whole answer; trouble is in the answer, never raised."""
    try:
        async with asyncio.timeout(timeout_s):
            try:
                first, meta = await _ask(connection, shot, now)
            except DroppedError:
                # An idle connection that the server closed: nothing was lost, send it again.
                first, meta = await _ask(connection, shot, now)
    except TimeoutError:
        connection.close()
        return Answered(error=f"no answer within {timeout_s:g} s")
    except (OSError, DroppedError, BadAnswerError, ValueError) as problem:
        connection.close()
        return Answered(error=f"{type(problem).__name__}: {problem}"[:200])
    tokens, steps, length = (
        meta.get(key) for key in ("completion_tokens", "spec_verify_ct", "spec_accept_length")
    )
    verified = isinstance(steps, int) and steps > 0
    return Answered(
        first_s=first,
        output_tokens=tokens if isinstance(tokens, int) else 0,
        accept_length=float(length) if verified and isinstance(length, int | float) else None,
        verify_steps=steps if isinstance(steps, int) else None,
    )


async def _ask(
    connection: Connection, shot: Shot, now: Callable[[], float]
) -> tuple[float | None, dict[str, object]]:
    """One exchange: when the first token came (None without streaming) and the ``meta_info``."""
    if not shot.stream:
        status, body = await connection.exchange(shot.wire)
        return None, _meta(status, body)
    first: float | None = None
    last = b""
    async for status, data in connection.events(shot.wire):
        if data == b"[DONE]":
            continue
        # Only the first and the last event are read: thousands come per second.
        if first is None and _meta(status, data).get("completion_tokens"):
            first = now()
        last = data
    return first, _meta(200, last)


def _meta(status: int, body: bytes) -> dict[str, object]:
    if status != 200:
        raise BadAnswerError(f"HTTP {status}: {body[:120].decode(errors='replace')}")
    answer = json.loads(body)
    meta = answer.get("meta_info") if isinstance(answer, dict) else None
    if not isinstance(meta, dict):
        raise BadAnswerError("an answer without meta_info: is this an SGLang /generate?")
    return meta
