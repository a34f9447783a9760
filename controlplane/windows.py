"""Which gauges of ``/metrics`` say anything about now.  Pure.

SGLang writes its gauges every ``decode_log_interval`` decode steps and leaves them alone while
nothing runs, so the same accept length may be read for minutes.  A gauge window is recognised by
its throughput, which is measured anew each time; whether anything runs, by the decode counter,
which moves with every step.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.metrics import ReplicaMetrics


@dataclass(frozen=True, slots=True)
class AcceptReading:
    """An accept length that may be used.

    Args:
        length: tokens per verify step and request, bonus included.
        num_steps, num_draft_tokens: the one shape the window ran with.
        weight: requests in the batch when it was written.
    """

    length: float
    num_steps: int
    num_draft_tokens: int
    weight: int


@dataclass(frozen=True, slots=True)
class GaugeWindow:
    """The newest gauge window seen of one replica.

    Args:
        decode_tokens: the decode counter at the last scrape.
        told: what tells this window from the next one.
        shape: (steps, draft tokens) when it ended; None where the server does not tell.
        pure: it began and ended with this shape, and something was decoded ever since.
    """

    decode_tokens: int | None = None
    told: tuple[float | None, ...] | None = None
    shape: tuple[int, int] | None = None
    pure: bool = False


def advance(
    before: GaugeWindow | None, now: ReplicaMetrics
) -> tuple[GaugeWindow, AcceptReading | None]:
    """Take the next scrape of a replica in.

    The first window after contact or after a pause is not used: what it began with is not known.
    A switch there and back between two scrapes cannot be seen, the shape being read once per
    window.

    Args:
        before: what the last call returned for this replica; None at first and after a restart.

    Returns:
        The window to hand in next time, and its accept length if that may be used: something was
        decoded since the last scrape, drafts were verified, and the shape did not change.
    """
    shape = (
        (now.num_steps, now.num_draft_tokens)
        if now.num_steps is not None and now.num_draft_tokens is not None
        else None
    )
    told = (now.gen_throughput, now.accept_length, now.sum_seq_lens)
    if before is None:
        return GaugeWindow(now.decode_tokens, told, shape), None
    moved = (
        now.decode_tokens is not None
        and before.decode_tokens is not None
        and now.decode_tokens > before.decode_tokens
    )
    if not moved or shape != before.shape:
        pure = False
    elif told != before.told and now.gen_throughput:
        pure = True
    else:
        pure = before.pure
    window = GaugeWindow(now.decode_tokens, told, shape, pure)
    if not (moved and pure and shape is not None and shape[0] > 0):
        return window, None
    if now.accept_length is None or not 1.0 <= now.accept_length <= shape[0] + 1:
        return window, None
    return window, AcceptReading(now.accept_length, *shape, weight=max(1, now.running or 0))


def combine(readings: list[AcceptReading]) -> AcceptReading | None:
    """One reading over DP replicas, weighted by their requests; None if their shapes differ."""
    if len({(one.num_steps, one.num_draft_tokens) for one in readings}) != 1:
        return None
    weight = sum(one.weight for one in readings)
    length = sum(one.length * one.weight for one in readings) / weight
    first = readings[0]
    return AcceptReading(length, first.num_steps, first.num_draft_tokens, weight)
