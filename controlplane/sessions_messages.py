"""Bodies of the session and replay calls under ``/v1``: pure records for both sides."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from controlplane.replay_player import FASTEST, SLOWEST, Mark
from controlplane.whatif_estimate import LoadModel
from engine_patch.tier import Frozen, Wire
from store.policies import Policy


class SessionInfo(Wire):
    """One recording.

    Args:
        ticks: None where counting them would take long (a store).
        complete: False while it is recorded, and after a kill.
        unreadable: damaged rows skipped so far.
    """

    id: int
    name: str
    engine_id: str
    first_seq: int | None
    last_seq: int | None
    started_utc_ms: int | None = None
    ended_utc_ms: int | None = None
    ticks: int | None = None
    complete: bool = True
    redacted: bool = False
    unreadable: int = 0


class StartSession(Frozen):
    """Body of ``POST /v1/sessions``."""

    engine_id: str = Field(min_length=1, max_length=64)
    name: str = Field(min_length=1, max_length=100, pattern=r"^[^/\\\x00-\x1f]+$")
    author: str = Field(min_length=1, max_length=200)


class StopSession(Frozen):
    """Body of ``POST /v1/sessions/{id}/stop``."""

    author: str = Field(min_length=1, max_length=200)


class MarkerRequest(Frozen):
    """Body of ``POST /v1/engines/{id}/markers``; fits a webhook.

    Args:
        kind: one word, for example "deploy" or "incident".
    """

    kind: str = Field(min_length=1, max_length=40)
    text: str = Field(default="", max_length=500)
    author: str = Field(min_length=1, max_length=200)


class ReplayState(Wire):
    """Answer of ``GET /v1/replay``: where a replay stands.

    Args:
        place, ticks: index of the present tick and their number.
        tape_s, length_s: the same in seconds of recorded time.
        moved: False if a jump found nothing that way.
        marks: how many there are, by kind.
    """

    session: SessionInfo
    playing: bool
    speed: float
    seq: int | None
    at_utc_ms: int | None
    place: int
    ticks: int
    tape_s: float
    length_s: float
    ended: bool
    moved: bool = True
    marks: dict[Mark, int] = Field(default_factory=dict)


class ReplayRequest(Frozen):
    """Body of ``PUT /v1/replay``; only what is given changes, at most one way of moving.

    Args:
        seq, at_utc_ms, place: go to this observation, wall time or index.
        tape_s: go to this second of recorded time; a wall clock that was set back does not matter.
        jump: go to the next mark of this kind, or with ``back`` to the last one.
        step: go so many ticks on (negative: back).
    """

    playing: bool | None = None
    speed: float | None = Field(default=None, ge=SLOWEST, le=FASTEST)
    seq: int | None = Field(default=None, ge=0)
    at_utc_ms: int | None = Field(default=None, ge=0)
    place: int | None = Field(default=None, ge=0)
    tape_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    step: int | None = None
    jump: Mark | None = None
    back: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> ReplayRequest:
        ways = (self.seq, self.at_utc_ms, self.place, self.tape_s, self.step, self.jump)
        if sum(way is not None for way in ways) > 1:
            raise ValueError("give one of seq, at_utc_ms, place, tape_s, step and jump")
        return self


class WhatIfRequest(Frozen):
    """Body of ``POST /v1/sessions/{id}/what-if``.

    Args:
        policy: None takes the recorded one.
        edits: changes to it, ``boundaries.0.up_at=32``.
    """

    policy: Policy | None = None
    edits: tuple[str, ...] = Field(default=(), max_length=50)
    load: LoadModel = LoadModel.RECORDED


class TrackAnswer(Wire):
    """Answer of ``GET /v1/sessions/{id}/track``: columns, one entry per tick.

    Args:
        every: only each so-manieth tick is in it.
        columns: see ``docs/sessions.md``.
    """

    every: int
    columns: dict[str, list[Any]]


class StripAnswer(Wire):
    """Answer of ``GET /v1/sessions/{id}/strip``: the time line in so many cells.

    Args:
        tiers: the newest tier seen in each cell, None where none was.
        what_if: the same under the last policy asked about; empty before one was, None where a
            poll failed or the answer does not list that many changes.
        gaps: cells in which a poll failed.
        marks: cells with something to jump to, by kind.
        most: the greatest concurrency, decode rate and queue of the recording.
    """

    cells: int
    tiers: tuple[str | None, ...]
    what_if: tuple[str | None, ...] = ()
    gaps: tuple[int, ...] = ()
    marks: dict[Mark, tuple[int, ...]] = Field(default_factory=dict)
    first_utc_ms: int
    last_utc_ms: int
    most: dict[str, float | None] = Field(default_factory=dict)
