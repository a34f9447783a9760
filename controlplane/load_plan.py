"""What a load run will send: phases of fixed work, where to, and how much at most.  Pure records.

The file format is shared with ``python -m engine_patch.embedded work``::

    {"phases": [{"concurrency": 4, "requests": [[128, 256], [128, 256]]}]}

Phases run one after the other.  Within a phase ``concurrency`` clients take the requests in order;
a phase ends when its last request is answered.
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from engine_patch.tier import Frozen

MOST_CLIENTS = 1024
MOST_REQUESTS = 200_000
MOST_SECONDS = 86_400.0

Length = Annotated[int, Field(ge=1, le=1_000_000)]


class PlanError(ValueError):
    """The plan or the target cannot be used; the message says what to change."""


class LoadPhase(Frozen):
    """A fixed piece of work.

    Args:
        concurrency: clients of the closed loop; in the open loop the most requests in flight.
        requests: (prompt tokens, output tokens) of each request, in the order of sending.
        rate: None for the closed loop; else mean arrivals per second of an open Poisson loop.
    """

    concurrency: int = Field(ge=1, le=MOST_CLIENTS)
    requests: tuple[tuple[Length, Length], ...] = Field(min_length=1)
    rate: float | None = Field(default=None, gt=0, le=10_000)

    @property
    def output_tokens(self) -> int:
        """Output tokens asked for by the whole phase."""
        return sum(output for _, output in self.requests)


class LoadPlan(Frozen):
    """Phases in the order in which they run."""

    phases: tuple[LoadPhase, ...] = Field(min_length=1)

    @property
    def clients(self) -> int:
        """The most connections any phase needs."""
        return max(phase.concurrency for phase in self.phases)

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Read a plan from JSON.

        Raises:
            PlanError: with the place of the first mistake.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise PlanError(f"phases: {place}: {first['msg']}") from None


class Bounds(Frozen):
    """How much a run may send and how long it may take; whichever comes first ends it.

    Args:
        max_requests: requests sent at most.
        max_seconds: wall seconds at most; requests in flight then are abandoned, not counted.
        request_timeout_s: seconds one request may take before it counts as failed.
    """

    max_requests: int = Field(default=20_000, ge=1, le=MOST_REQUESTS)
    max_seconds: float = Field(default=600.0, gt=0, le=MOST_SECONDS)
    request_timeout_s: float = Field(default=120.0, gt=0, le=3600)


class Target(Frozen):
    """A server to load, taken apart from its URL."""

    host: str
    port: int = Field(ge=1, le=65535)
    tls: bool = False
    prefix: str = ""

    @property
    def url(self) -> str:
        """The target as a person would write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}"

    @property
    def loopback(self) -> bool:
        """Whether the target is this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @classmethod
    def parse(cls, url: str, *, allow_remote: bool = False) -> Self:
        """Read a target from a URL.

        Raises:
            PlanError: not an http(s) URL, or not this machine while ``allow_remote`` is False.
        """
        parts = urllib.parse.urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise PlanError(f"url {url!r}: the port is no number from 1 to 65535") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PlanError(f"url {url!r}: write it as http://HOST:PORT")
        if parts.username is not None or parts.query or parts.fragment:
            raise PlanError(f"url {parts.hostname!r}: give no user, query or fragment in it")
        tls = parts.scheme == "https"
        target = cls(
            host=parts.hostname,
            port=port if port is not None else (443 if tls else 80),
            tls=tls,
            prefix=parts.path.rstrip("/"),
        )
        if not target.loopback and not allow_remote:
            raise PlanError(
                f"{target.host} is not this machine: load on others needs --allow-remote "
                "with --max-requests and --max-seconds"
            )
        return target


class Work(Frozen):
    """A plan with everything else that decides what goes over the wire.

    Args:
        stream: ask for a streamed answer (only then can the time to the first token be seen).
        repeat: start again with the first phase after the last, until a bound is reached.
        seed: of prompts and Poisson arrivals; the same seed sends the same bytes.
    """

    plan: LoadPlan
    bounds: Bounds = Bounds()
    stream: bool = False
    repeat: bool = False
    seed: int = 1

    @model_validator(mode="after")
    def _within(self) -> Self:
        asked = sum(len(phase.requests) for phase in self.plan.phases)
        if not self.repeat and asked > self.bounds.max_requests:
            raise ValueError(
                f"the phases hold {asked} requests, more than the bound of "
                f"{self.bounds.max_requests}: raise --max-requests or shorten the phases"
            )
        return self
