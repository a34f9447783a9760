"""What the control plane refuses, in words and numbers a client can act on."""

from __future__ import annotations

from collections.abc import Mapping


class ProblemError(Exception):
    """Answered as problem details.

    Args:
        status: HTTP status.
        code: short word for programs.
        detail: what is wrong and what to do.
    """

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})


class SourceError(Exception):
    """A file or router that names engines cannot be used; the message says why and what to do."""
