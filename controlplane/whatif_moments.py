"""What a what-if is asked about: the fresh samples of a recording, on the controller's time line.

Made once per session from its track; every policy is then asked about the same moments.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple, cast

from controlplane.timeline import Timeline, passed_sample
from store.observations import Sample
from store.session_track import Track

FAR_MS = 2**60
"""A staleness that never comes: holes are judged later, by each policy's own limit."""


class Moment(NamedTuple):
    """One fresh sample with known load.

    Args:
        now_ms: on the controller's time line; it never runs back.
        since_ms: time since the previous fresh sample; 0 at the first one and after a restart.
        first: nothing before it counts (the recording begins, or the engine restarted).
        boot_ms: when the engine's present start was first seen.
        dt_ms: time until the next moment for which its numbers stand; 0 before a restart or a gap.
        load, total: running requests of the busiest replica, and of all.
        waiting: requests that are queued or being prefilled; None if the engine does not tell.
        capacity, committed, reserve: KV slots; None where the engine does not tell.
        retracted: requests retracted since the previous fresh sample.
        accept, accept_tier, accept_requests: accept length of the engine's newest window.
        tier: what every observed rank reported; None if they differed.
        override: a person's override was in force.
        tokens, steps, finished, prefill: decode tokens, decode steps, finished requests and prompt
            tokens computed until the next moment; None unknown.
    """

    seq: int
    at_utc_ms: int
    now_ms: int
    since_ms: int
    first: bool
    boot_ms: int
    dt_ms: int
    load: int
    total: int
    waiting: int | None
    capacity: int | None
    committed: int | None
    reserve: int | None
    retracted: int
    accept: float | None
    accept_tier: str | None
    accept_requests: int
    tier: str | None
    override: bool
    tokens: int | None
    steps: int | None
    finished: int | None
    prefill: int | None


@dataclass(frozen=True)
class Moments:
    """All moments of a session.

    Args:
        gaps: ticks without a sample.
        left_out: samples that repeat old numbers or do not tell the load.
        seconds: time covered by the moments.
    """

    moments: tuple[Moment, ...]
    gaps: int
    left_out: int
    seconds: float


def moments_of(track: Track, *, longest_ms: int = 5000) -> Moments:
    """The moments of a track.

    Args:
        longest_ms: a longer silence between two fresh samples belongs to nobody.
    """
    gaps = left_out = 0
    time = Timeline()
    rows: list[_Row] = []
    lapsed = False
    for index, seen in enumerate(_samples(track)):
        if track["gap"][index]:
            gaps += 1
            lapsed = True
            continue
        time, advance = passed_sample(time, cast("Sample", seen), FAR_MS)
        load = seen.replica_concurrency
        load = seen.concurrency if load is None else load
        if not seen.fresh or load is None:
            left_out += 1
            continue
        first = not rows or advance.restart
        rows.append(
            _Row(
                place=index,
                now_ms=time.clock.now_ms,
                boot_ms=time.boot_ms,
                first=first,
                lapsed=lapsed,
                load=load,
                retracted=advance.retracted,
                verified=advance.verified,
            )
        )
        lapsed = False
    made = [
        _moment(track, row, following, longest_ms, before)
        for before, row, following in zip([None, *rows[:-1]], rows, [*rows[1:], None], strict=True)
    ]
    return Moments(tuple(made), gaps, left_out, sum(one.dt_ms for one in made) / 1000)


class _Row(NamedTuple):
    place: int
    now_ms: int
    boot_ms: int
    first: bool
    lapsed: bool
    load: int
    retracted: int
    verified: bool


def _samples(track: Track) -> Iterator[SimpleNamespace]:
    """The fields of each sample that the time line reads."""
    for at_utc_ms, mono, clock, boot, fresh, tokens, retractions, verifies, load, busiest in zip(
        track["at_utc_ms"],
        track["at_mono_ms"],
        track["clock_id"],
        track["boot_id"],
        track["fresh"],
        track["decode_tokens"],
        track["retractions"],
        track["verify_steps"],
        track["concurrency"],
        track["replica_concurrency"],
        strict=True,
    ):
        yield SimpleNamespace(
            at_utc_ms=at_utc_ms,
            at_mono_ms=mono,
            clock_id=clock,
            boot_id=boot,
            fresh=bool(fresh),
            decode_tokens=tokens,
            retractions=retractions,
            verify_steps=verifies,
            lease_remaining_s=None,
            concurrency=load,
            replica_concurrency=busiest,
        )


def _moment(
    track: Track, row: _Row, following: _Row | None, longest_ms: int, before: _Row | None
) -> Moment:
    at = row.place
    dt = 0
    if following is not None and not following.first and not following.lapsed:
        dt = following.now_ms - row.now_ms
        dt = 0 if dt > longest_ms else dt
    queued, prefilling = track["queued"][at], track["prefilling"][at]
    total = track["concurrency"][at]
    return Moment(
        seq=track["seq"][at],
        at_utc_ms=track["at_utc_ms"][at],
        now_ms=row.now_ms,
        since_ms=0 if row.first or before is None else row.now_ms - before.now_ms,
        first=row.first,
        boot_ms=row.boot_ms,
        dt_ms=dt,
        load=row.load,
        total=row.load if total is None else total,
        waiting=None if queued is None else queued + (prefilling or 0),
        capacity=track["kv_capacity"][at],
        committed=track["kv_committed"][at],
        reserve=track["kv_reserve"][at],
        retracted=row.retracted,
        accept=track["accept_length"][at] if row.verified else None,
        accept_tier=track["accept_tier"][at],
        accept_requests=track["accept_requests"][at] or 0,
        tier=track["engine_tier"][at],
        override=track["override"][at] is not None,
        tokens=_passed(track["decode_tokens"], at, following) if dt else None,
        steps=_passed(track["decode_steps"], at, following) if dt else None,
        finished=_passed(track["finished"], at, following) if dt else None,
        prefill=_passed(track["prefill_tokens"], at, following) if dt else None,
    )


def _passed(counter: list[int | None], at: int, following: _Row | None) -> int | None:
    if following is None:
        return None
    one, other = counter[at], counter[following.place]
    if one is None or other is None or other < one:
        return None
    return other - one
