"""Whether a window has seen whole requests, and not only a phase of them.  Pure.

A closed-loop client prefills, decodes and prefills again.  A window shorter than a request sees one
client's decoding alone, or its prefill twice; with many clients, which are spread over their
requests from the beginning, a part of a request's time already holds everything in its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from controlplane.load_reports import FlowReport

ENOUGH_REQUESTS = 16
"""Requests that end within a window, from which on it need not be as long as a request."""
NEARLY = 0.9
"""Share of a request's time that passes for all of it: the time is an estimate."""


def request_s(reports: Sequence[FlowReport], mean_output: float) -> float | None:
    """How long a request takes at the speed seen: requests in flight over requests per second.

    By Little's law, so that it is known before the first request has ended.

    Args:
        reports: of a steady load, oldest first.
        mean_output: output tokens per request.

    Returns:
        Seconds; None while no token was seen.
    """
    if len(reports) < 2:
        return None
    seconds = (reports[-1].at_ms - reports[0].at_ms) / 1000
    tokens = reports[-1].tokens - reports[0].tokens
    if seconds <= 0 or tokens <= 0:
        return None
    return fmean(one.in_flight for one in reports[1:]) * mean_output * seconds / tokens


def short_of_s(
    reports: Sequence[FlowReport], mean_output: float, share: float = NEARLY
) -> float | None:
    """A request's time in seconds if the window that ``reports`` span is too short for it.

    None if it saw enough.

    Args:
        share: of a request's time that is enough.
    """
    if sum(len(one.finished) for one in reports[1:]) >= ENOUGH_REQUESTS:
        return None
    takes = request_s(reports, mean_output)
    if takes is None:
        return None
    return takes if reports[-1].at_ms - reports[0].at_ms < 1000 * share * takes else None


def saw_a_request(reports: Sequence[FlowReport], mean_output: float) -> bool:
    """Whether a window that ``reports`` span may end; not while too few of them have come to tell.

    A busy machine brings reports late, and a window that ended meanwhile would hold nothing.
    """
    if request_s(reports, mean_output) is None:
        return False
    # All of it here, so that what is judged a little later lies on the same side.
    return short_of_s(reports, mean_output, share=1.0) is None


def too_short(reports: Sequence[FlowReport], mean_output: float) -> tuple[str, ...]:
    """Why a window that ended does not stand for the server's speed; empty if it does."""
    takes = short_of_s(reports, mean_output)
    if takes is None:
        return ()
    seconds = (reports[-1].at_ms - reports[0].at_ms) / 1000
    return (
        f"a window of {seconds:.1f} s saw only a part of a request, which takes about "
        f"{takes:.1f} s: give it more time (--budget) or shorter answers (--out)",
    )
