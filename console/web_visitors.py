"""Who is logged in to ``specdeck web``: each visitor acts under his own token and name."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field

from controlplane.client import ControlPlaneClient, ControlPlaneError, UnauthorisedError

SESSION_S = 12 * 3600.0
MOST_SESSIONS = 64
FAILED_S = 1.0
"""Seconds that a failed login keeps the next one waiting."""
NAME_MOST = 60


class LoginError(Exception):
    """The login is refused; the message is for the visitor."""


@dataclass(frozen=True)
class Visitor:
    """One session.

    Args:
        token: what the console of this visitor sends to the control plane; None where that wants
            none.
    """

    name: str
    token: str | None = field(repr=False)
    ends_s: float


class Visitors:
    """Logs visitors in.

    Args:
        url: the control plane.
        own_token: what a visitor must know where the control plane itself wants no token; None
            where the control plane's tokens are asked for.
    """

    def __init__(self, url: str, own_token: str | None) -> None:
        self._url = url
        self._own_token = own_token
        self._sessions: dict[str, Visitor] = {}
        self._turn = asyncio.Lock()

    @property
    def words(self) -> str:
        """What the login page asks for."""
        if self._own_token is None:
            return "Log in with your token of the control plane."
        return "Log in with the token of this console; specdeck web wrote it into a file."

    async def log_in(self, name: str, token: str) -> str:
        """The new session's secret.

        Raises:
            LoginError: the name or the token will not do.
        """
        name, token = name.strip(), token.strip()
        if not name or len(name) > NAME_MOST or not name.isprintable():
            raise LoginError(f"write your name, at most {NAME_MOST} characters")
        # One at a time, and slowly after a wrong one: guessing gets nowhere.
        async with self._turn:
            try:
                known = await self._check(token)
            except LoginError:
                await asyncio.sleep(FAILED_S)
                raise
            self._forget()
            if len(self._sessions) >= MOST_SESSIONS:
                raise LoginError("too many visitors are logged in: try again later")
            session = secrets.token_urlsafe(32)
            self._sessions[session] = Visitor(name, known, time.monotonic() + SESSION_S)
            return session

    async def _check(self, token: str) -> str | None:
        """The token that the visitor's console shall send."""
        if self._own_token is not None:
            if not hmac.compare_digest(token.encode(), self._own_token.encode()):
                raise LoginError("this token is not known")
            return None
        if not token.isascii() or not token.isprintable():
            raise LoginError("this token is not known")
        try:
            async with ControlPlaneClient(self._url, token) as client:
                await client.about()
        except UnauthorisedError:
            raise LoginError("this token is not known") from None
        except ControlPlaneError as error:
            raise LoginError(str(error)) from None
        return token

    def find(self, session: str | None) -> Visitor | None:
        """The visitor of a session, None if it is not known or has ended."""
        visitor = self._sessions.get(session or "")
        if visitor is None or visitor.ends_s < time.monotonic():
            return None
        return visitor

    def log_out(self, session: str | None) -> None:
        """End a session."""
        self._sessions.pop(session or "", None)

    def _forget(self) -> None:
        now = time.monotonic()
        self._sessions = {key: one for key, one in self._sessions.items() if one.ends_s >= now}


async def wants_token(url: str) -> bool:
    """Whether the control plane asks for tokens.

    Raises:
        ControlPlaneError: it does not answer.
    """
    try:
        async with ControlPlaneClient(url) as client:
            await client.about()
    except UnauthorisedError:
        return True
    return False
