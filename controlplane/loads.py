"""SGLang's ``GET /v1/loads``: what each scheduler last wrote to shared memory.  Pure.

It answers in milliseconds while the scheduler is busy.  A snapshot is written at every prefill,
every ``load_snapshot_publish_interval`` decode steps and all the time while idle; its own timestamp
tells a new one from a repeated one.  (0.5.17 and 0.5.23 ``managers/load_snapshot.py``.)
"""

from __future__ import annotations

from pydantic import Field, ValidationError

from controlplane.prometheus_text import MetricsError
from engine_patch.tier import Wire


class LifetimeAcceptance(Wire):
    """Mean since the server started, or since the last accepted ``/set_internal_state``.

    Never a control signal.
    """

    accept_length: float | None = None
    accept_rate: float | None = None


class ReplicaLoad(Wire):
    """One DP replica.

    Args:
        timestamp: seconds since 1970 when the scheduler wrote it; 0 until it wrote one.
        num_running_reqs, num_waiting_reqs: requests in the running batch and waiting.
        num_used_tokens: KV slots locked by requests; evictable ones are not in it.
        max_running_requests: the cap in force, per replica.
        total_prefill_uncached_tokens: counter.
        gen_throughput: of the last gauge window; sticks at idle, never a speed.
    """

    timestamp: float = Field(default=0.0, allow_inf_nan=False)
    dp_rank: int = Field(default=0, ge=0)
    num_running_reqs: int | None = Field(default=None, ge=0)
    num_waiting_reqs: int | None = Field(default=None, ge=0)
    num_used_tokens: int | None = Field(default=None, ge=0)
    max_total_num_tokens: int | None = Field(default=None, ge=0)
    max_running_requests: int | None = Field(default=None, ge=0)
    total_prefill_uncached_tokens: int | None = Field(default=None, ge=0)
    gen_throughput: float | None = None
    speculative: LifetimeAcceptance | None = None

    @property
    def written(self) -> bool:
        """Whether the scheduler wrote it; before its first snapshot the slot holds zeros."""
        return self.timestamp > 0 and bool(self.max_total_num_tokens)


class Loads(Wire):
    """The whole answer.

    Args:
        num_accelerators: accelerators behind one DP replica.
    """

    version: str | None = None
    accelerator: str | None = None
    num_accelerators: int | None = Field(default=None, ge=0)
    loads: tuple[ReplicaLoad, ...]

    @property
    def replicas(self) -> tuple[ReplicaLoad, ...]:
        """The replicas that told anything, by rising DP rank."""
        told = [load for load in self.loads if load.written]
        return tuple(sorted(told, key=lambda load: load.dp_rank))


def read_loads(text: str | bytes) -> Loads:
    """Read the JSON form of ``/v1/loads``.

    Raises:
        MetricsError: it is no such answer, or names a DP replica twice.
    """
    try:
        loads = Loads.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MetricsError(
            f"/v1/loads cannot be read: {where or 'body'}: {first['msg']}"
        ) from error
    ranks = [load.dp_rank for load in loads.loads]
    if len(set(ranks)) != len(ranks):
        raise MetricsError("/v1/loads names a DP replica twice")
    return loads
