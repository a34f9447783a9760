"""Which waiting requests the next prefill pass takes, as SGLang decides it.

Read in SGLang 0.5.23, ``managers/schedule_policy.py`` (``PrefillAdder``) and
``scheduler_components/new_token_ratio_tracker.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine_patch.embedded.requests import Request

CLIP_NEW_TOKENS = 4096
"""SGLang counts on at most this much output of a request."""
SHARE_START, SHARE_LEAST, SHARE_STEPS = 0.7, 0.7 * 0.14, 600
"""Share of the wanted output that running requests are expected to use: at the start, at least,
and the decode steps from one to the other."""
RETRACT_STEPS = 20
"""Decode steps added per request when the share is estimated anew after a retraction."""


class OutputShare:
    """SGLang's running estimate of the share of ``max_new_tokens`` that is really used."""

    def __init__(self) -> None:
        self.now = SHARE_START

    def decay(self) -> None:
        """A decode step went without a retraction."""
        self.now = max(SHARE_LEAST, self.now - (SHARE_START - SHARE_LEAST) / SHARE_STEPS)

    def retracted(self, running: Sequence[Request]) -> None:
        """Requests were retracted; ``running`` are left."""
        emitted = sum(request.emitted for request in running)
        wanted = sum(request.output for request in running)
        self.now = min(1.0, (emitted + RETRACT_STEPS * len(running)) / (wanted + 1))


def admit(
    waiting: Iterable[Request],
    running: Iterable[Request],
    *,
    room: int,
    chunk_tokens: int,
    free: int,
    reserve: int,
    share: float,
) -> tuple[list[Request], list[int]]:
    """Choose the requests of a prefill pass, first come first served.

    Args:
        room: how many more may run.
        chunk_tokens: most prompt tokens in the pass; a longer rest is cut and goes on later.
        free: KV slots that could be had.
        reserve: KV slots each running request gets besides its tokens.
        share: see ``OutputShare``.

    Returns:
        The requests and the tokens to compute for each; only the last may stay unfinished.
    """
    left: float = free - sum(
        request.remaining(CLIP_NEW_TOKENS) * (1.0 if request.ignore_eos else share)
        for request in running
    )
    batch: list[Request] = []
    chunks: list[int] = []
    for request in waiting:
        if len(batch) >= room or chunk_tokens <= 0:
            break
        missing = request.context - request.prefilled
        needed = missing + request.remaining(CLIP_NEW_TOKENS) + reserve
        # One that was begun goes on: its slots are committed already.
        if needed > left and not request.prefilled:
            break
        left -= needed
        chunk = min(missing, chunk_tokens)
        chunk_tokens -= chunk
        batch.append(request)
        chunks.append(chunk)
        if chunk < missing:
            break
    return batch, chunks
