"""KV slots of one replica: capacity, committed, evictable, speculative reserve."""

from __future__ import annotations

from engine_patch.contract import KvSlots


class KvPool:
    """Counts slots; one slot holds one token (page size 1).

    ``committed + reserve + evictable <= capacity`` holds whenever a pass is about to start: slots
    of finished requests stay as evictable prefix cache and give way as needed.

    Args:
        capacity: all slots.
    """

    __slots__ = ("capacity", "committed", "evictable", "held", "per_request", "requests")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.committed = 0
        self.evictable = 0
        self.held = 0
        self.requests = 0
        self.per_request = 0

    @property
    def reserve(self) -> int:
        """Slots held back for the running requests' next steps."""
        return self.requests * self.per_request

    @property
    def free(self) -> int:
        """Slots that could be had now, evictable ones included; negative when short."""
        return self.capacity - self.committed - self.held - self.reserve

    def commit(self, tokens: int) -> None:
        """Take slots for computed tokens."""
        self.committed += tokens

    def enter(self) -> None:
        """A request joins the running batch and gets its reserve."""
        self.requests += 1

    def leave(self, tokens: int, *, keep: bool) -> None:
        """A request leaves with ``tokens`` committed slots.

        Args:
            keep: whether they stay as prefix cache.
        """
        self.requests -= 1
        self.release(tokens, keep=keep)

    def release(self, tokens: int, *, keep: bool) -> None:
        """Give committed slots back, without a reserve (a request that never ran)."""
        self.committed -= tokens
        if keep:
            self.evictable += tokens

    def evict(self) -> None:
        """Drop prefix cache until everything fits."""
        self.evictable = max(0, min(self.evictable, self.free))

    def slots(self) -> KvSlots:
        """The four numbers as they are reported."""
        return KvSlots(
            capacity=self.capacity,
            committed=self.committed + self.held,
            evictable=self.evictable,
            reserve=self.reserve,
        )
