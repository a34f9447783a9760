"""What off rounds owe the drafter: rows whose keys and values are stored together, later.

Nobody reads the drafter's keys and values while off, so *keep* need not store them in every round.
Its matrix products take about as long for 200 rows as for one, the time to read their weights (an
H200 reads 4.8 TB/s and computes 990 TFLOP/s in bf16, so they meet at 206 rows).  So a round only
copies what the drafter would be given, and one call stores several rounds.

What is owed has to be stored before the drafter reads or writes anything else, and before another
round of other requests: a request that ended has given its slots back, so a row would come too late
for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ROWS = 512
"""Most rows that are owed: a call of these takes 0.107 ms, 640 TFLOP/s (docs/gpu-results.md)."""
ROUNDS = 16
"""Most rounds that are owed; a move up stores what is owed before its first draft."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a drafter is given, one row for each token.

    Args:
        tokens: shape (rows,).
        positions: of these tokens in their requests, shape (rows,).
        slots: where keys and values go, shape (rows,).
        hidden_states: the target's, from which it found these tokens, shape (rows, width).
    """

    tokens: Any
    positions: Any
    slots: Any
    hidden_states: Any


class Owed:
    """Rows of the rounds that are not stored yet, all of the same requests.

    Args:
        rounds: most rounds that wait; 1 where none may.
    """

    def __init__(self, rounds: int = ROUNDS) -> None:
        self._most = rounds
        self._requests: list[str] = []
        self._rounds = self._size = 0
        self._numbers: Any = None
        self._hidden_states: Any = None

    def waits(self, requests: int) -> bool:
        """Whether rows of a batch may wait: not if the next round would have no room."""
        return self._most > 1 and 2 * requests <= ROWS

    def others(self, requests: Sequence[str]) -> bool:
        """Whether rows of other requests are owed."""
        return self._rounds > 0 and self._requests != requests

    def add(self, requests: Sequence[str], rows: Rows) -> bool:
        """Copy a round's rows; whether this was the last that has room.

        They are copied because a graph's outputs are overwritten by its next replay.
        """
        import torch

        size, width = rows.hidden_states.shape
        if self._hidden_states is None:
            new = rows.hidden_states.new_empty
            self._hidden_states = new((ROWS, width))
            self._numbers = new((3 * ROWS,), dtype=torch.int64)
        begin = self._rounds * size
        numbers = self._numbers[3 * begin : 3 * (begin + size)].view(3, size)
        given = (rows.tokens, rows.positions, rows.slots)
        torch.stack([values.long() for values in given], out=numbers)
        self._hidden_states[begin : begin + size].copy_(rows.hidden_states)
        self._requests, self._size = list(requests), size
        self._rounds += 1
        return self._rounds == self._most or begin + 2 * size > ROWS

    def settle(self) -> Rows | None:
        """Everything that is owed, None if nothing is; afterwards nothing is."""
        if not self._rounds:
            return None
        total = self._rounds * self._size
        numbers = self._numbers[: 3 * total].view(self._rounds, 3, self._size)
        self._rounds = 0
        # Kernels refuse numbers with gaps between them, as a column of single requests would be.
        tokens, positions, slots = numbers.transpose(0, 1).contiguous().view(3, total)
        return Rows(tokens, positions, slots, self._hidden_states[:total])
