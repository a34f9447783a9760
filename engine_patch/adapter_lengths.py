"""Lengths of requests on the host, without waiting for the GPU, from one off round to the next.

Attention backends that plan a round on the host (flashinfer) need every request's length there.
With speculation the scheduler learns it from the GPU, once the round before has verified, so that
it prepares a round while the GPU waits: 1.2 ms of a round of 4.9 on an H200 with flashinfer
(docs/gpu-results.md).  After an off round nothing has to be learned: each request is one token
longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine_patch import adapter_tiers
from engine_patch.tier import OFF


class Lengths:
    """The lengths with which the next round begins, where the host knows them."""

    def __init__(self) -> None:
        self._requests: list[str] = []
        self._begun: Any = None
        self._next: Any = None

    def resolve(
        self, original: Callable[..., Any], future: Any, batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Around ``FutureMap.resolve_seq_lens_cpu``: from the host, or as SGLang does it."""
        waits = getattr(batch.spec_info, "future_indices", None) is not None
        if not waits or not future.needs_cpu_seq_lens:
            return original(future, batch, *args, **kwargs)
        requests = [request.rid for request in batch.reqs]
        known = self._of(requests)
        if known is None:
            result = original(future, batch, *args, **kwargs)
        else:
            # As for a backend that needs no lengths on the host; then they are put there.
            future.needs_cpu_seq_lens = False
            try:
                result = original(future, batch, *args, **kwargs)
            finally:
                future.needs_cpu_seq_lens = True
            batch.seq_lens_cpu, batch.seq_lens_sum = known, int(known.sum())
        self._requests, self._begun = requests, batch.seq_lens_cpu
        return result

    def ran(self, batch: Any) -> None:
        """A batch was launched; only an off round says how long its requests are afterwards."""
        tiers = adapter_tiers.controller()
        off = tiers is not None and tiers.round.tier == OFF and batch.forward_mode.is_decode()
        begun, self._begun = self._begun, None
        self._next = begun + 1 if off and begun is not None else None

    def _of(self, requests: list[str]) -> Any:
        """Lengths of these requests, None if one of them is not known."""
        if self._next is None or requests == self._requests:
            return self._next
        place = {request: number for number, request in enumerate(self._requests)}
        rows = [place.get(request, -1) for request in requests]
        return None if not rows or min(rows) < 0 else self._next[rows]


_lengths = Lengths()


def resolve(
    original: Callable[..., Any], future: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    """Around ``FutureMap.resolve_seq_lens_cpu``."""
    return _lengths.resolve(original, future, batch, *args, **kwargs)


def ran(batch: Any) -> None:
    """After ``Scheduler.run_batch``."""
    _lengths.ran(batch)
