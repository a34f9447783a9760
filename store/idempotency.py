"""Changes asked for under an idempotency key, as they are written down.  Frozen and pure."""

from __future__ import annotations

from enum import StrEnum

from engine_patch.tier import Frozen


class KeptState(StrEnum):
    """How far a change under an idempotency key is."""

    MAKING = "making"
    """Not answered yet; found after a start, its outcome is not known."""
    ANSWERED = "answered"
    DROPPED = "dropped"
    """Nothing was decided: storing this removes the row."""


class KeptAnswer(Frozen):
    """A change that a program asked for under an idempotency key, and how it was answered.

    Args:
        caller: name of the token it was asked with, "" without tokens.
        request: digest of method, path, query and body.
        status, headers, text: the answer, once there is one.
    """

    id: int = 0
    caller: str
    key: str
    request: str
    at_utc_ms: int
    state: KeptState = KeptState.MAKING
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    text: str = ""
