"""Where a person wants a replay to go, from what was typed.  Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from controlplane.durations import parse_duration
from controlplane.sessions_messages import ReplayRequest, ReplayState

HOW = "write 12:04:31, +90s, -5m, 50% or #1148"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class GotoError(ValueError):
    """The text names no place of a recording; the message says what to write."""


def goto(text: str, state: ReplayState, zone: tzinfo | None) -> ReplayRequest:
    """The order that goes where ``text`` says.

    Args:
        text: a wall time in ``zone``, a length of time from here, a share, an observation.
        zone: None for this machine's.

    Raises:
        GotoError: it says none of these.
    """
    text = text.strip()
    if match := re.fullmatch(r"#?(\d{1,15})", text, re.ASCII):
        return ReplayRequest(seq=int(match[1]))
    if match := re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*%", text, re.ASCII):
        return ReplayRequest(tape_s=min(float(match[1]), 100.0) / 100 * state.length_s)
    if text[:1] in ("+", "-", "−"):
        try:
            seconds = parse_duration(text[1:])
        except (ValueError, OverflowError):
            raise GotoError(HOW) from None
        at = state.tape_s + (seconds if text[0] == "+" else -seconds)
        return ReplayRequest(tape_s=min(max(at, 0.0), state.length_s))
    if match := re.fullmatch(_CLOCK, text):
        return ReplayRequest(at_utc_ms=_at(match, state, zone))
    raise GotoError(HOW)


def _at(match: re.Match[str], state: ReplayState, zone: tzinfo | None) -> int:
    """The recording's moment with this wall time: of the days it covers, the nearest to here."""
    hour, minute, second = (int(part or 0) for part in match.groups())
    if hour > 23 or minute > 59 or second > 59:
        raise GotoError(f"{match[0]} is no time of day")
    session = state.session
    here = state.at_utc_ms or session.started_utc_ms or 0
    day = (_EPOCH + timedelta(milliseconds=here)).astimezone(zone)
    found: list[int] = []
    for shift in (-1, 0, 1):
        moment = (day + timedelta(days=shift)).replace(
            hour=hour, minute=minute, second=second, microsecond=0
        )
        # The end of the second that was named: its ticks belong to it.
        found.append(max(round((moment - _EPOCH) / timedelta(milliseconds=1)) + 999, 0))
    first, last = session.started_utc_ms or 0, session.ended_utc_ms or here
    inside = [at for at in found if first <= at <= last + 999]
    return min(inside or found, key=lambda at: abs(at - here))
