"""How one replica of the embedded engine is set up."""

from __future__ import annotations

from dataclasses import dataclass

from engine_patch.contract_words import OffKind
from engine_patch.embedded.acceptance import AcceptMode
from engine_patch.embedded.table import Table
from engine_patch.tier import OFF, TierName


@dataclass(frozen=True)
class EngineConfig:
    """One replica.

    Args:
        tiers: the built tiers; each needs a column in the table.
        plain: a server without speculation; ``tiers`` is then ``off`` alone.
        accept_length: mean accept length of the chain of three, see ``acceptance``.
        max_running_requests: cap of the running batch.
        empty_slots: slots of that cap that never fill.  A plain server leaves one empty: in each
            measured plain run at its cap a last request ran alone, in no speculative one.
        kv_slots: KV capacity.
        reserve_follows: whether the reserve follows the active tier (``off`` gives it back) or
            stays that of the widest built tier, as in an unpatched SGLang.
        dp_rank: replica number.
    """

    table: Table
    tiers: tuple[TierName, ...] = (OFF, "s1k1d2", "s3k1d4")
    launch_tier: TierName = "s3k1d4"
    off_kind: OffKind = OffKind.PLAIN_PATH
    plain: bool = False
    accept_length: float = 2.0
    accept_mode: AcceptMode = AcceptMode.SAMPLED
    max_running_requests: int = 256
    empty_slots: int = 0
    kv_slots: int = 861_668
    reserve_follows: bool = True
    dp_rank: int = 0

    def __post_init__(self) -> None:
        if self.max_running_requests > self.table.largest_batch:
            raise ValueError(
                f"table {self.table.name} ends at {self.table.largest_batch} running requests; "
                f"max_running_requests {self.max_running_requests} is above it"
            )
        if self.max_running_requests - self.empty_slots < 1:
            raise ValueError("max_running_requests must leave room for a request")
        for tier in self.tiers:
            self.table.column(tier, self.off_kind)

    @classmethod
    def plain_server(cls, table: Table, *, max_running_requests: int = 256) -> EngineConfig:
        """A server without speculation, as measured."""
        return cls(
            table=table,
            tiers=(OFF,),
            launch_tier=OFF,
            plain=True,
            max_running_requests=max_running_requests,
            empty_slots=1,
            kv_slots=906_163,
        )
