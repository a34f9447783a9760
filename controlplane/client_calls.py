"""What the calls of ``ControlPlaneClient`` are made of: requests, changes, and errors in words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from controlplane.messages import Problem

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")


class ControlPlaneError(Exception):
    """A request failed; the message is a plain sentence that says what to do.

    Args:
        problem: the server's problem details, None if it did not answer with any.
    """

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class UnreachableError(ControlPlaneError):
    """No control plane answers at the URL."""


class UnauthorisedError(ControlPlaneError):
    """The token is missing, not known, or may not do this."""


class RefusedError(ControlPlaneError):
    """The control plane answered with a problem."""


class NotConfirmedError(ControlPlaneError):
    """What was asked for is in force, but the engine did not confirm it in time."""


class Calls:
    """Declares what ``ControlPlaneClient`` provides for its calls."""

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | None = None,
        query: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        raise NotImplementedError

    async def _change(
        self,
        method: str,
        path: str,
        body: BaseModel,
        *,
        dry_run: bool = False,
        wait_s: float | None = None,
        if_match: str | None = None,
    ) -> tuple[bytes, bool]:
        """Make a change.

        Args:
            dry_run: check it alone.
            wait_s: wait up to so many seconds until every observed rank does what it asks for.
            if_match: ETag of what it was made for.

        Returns:
            The answer, and whether the confirmation that was waited for did not come.
        """
        raise NotImplementedError

    def _server_sent(self, path: str) -> AsyncGenerator[tuple[str, str], None]:
        """The (event, data) pairs of a stream that ends."""
        raise NotImplementedError

    def _read(self, model: type[Model], content: bytes | str) -> Model:
        raise NotImplementedError

    def _read_list(self, item: type[Item], content: bytes) -> list[Item]:
        raise NotImplementedError


def engine_path(engine_id: str, *more: str) -> str:
    """The path of something that belongs to an engine."""
    return "/".join(["/v1/engines", quote(engine_id, safe=""), *more])


def not_confirmed(engine_id: str, wait_s: float | None, state: str) -> NotConfirmedError:
    """What was asked for is in the control plane, and the engine does not do it yet."""
    return NotConfirmedError(
        f"{state}, but {engine_id} did not confirm it within {wait_s or 0:g} s: "
        f"specdeck status {engine_id} shows what it runs"
    )
