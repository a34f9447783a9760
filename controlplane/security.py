"""Who may ask and who may change: tokens, roles, and a guard against foreign web pages."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane import problems
from controlplane.errors import ProblemError
from controlplane.settings import MAKE_TOKEN, MIN_TOKEN, Role, Settings, TokenSettings, is_loopback
from controlplane.settings_load import ConfigError

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request; ``name`` is None for a caller on loopback who needs no token."""

    name: str | None
    may_operate: bool

    def author(self, claimed: str) -> str:
        """The author to record: what the caller says, with the token's name if there is one."""
        if self.name is None or claimed == self.name:
            return claimed
        by = f" (token {self.name})"
        return claimed[: 200 - len(by)] + by


def secret(what: str, file: Path | None, variable: str | None) -> str | None:
    """Read a secret from a file or an environment variable; None if neither is configured.

    Raises:
        ConfigError: it cannot be read or is empty.  The value is in no message.
    """
    if file is not None:
        try:
            value = file.expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise ConfigError(f"{what}: cannot read {file}: {reason}") from error
        place = f"file {file}"
    elif variable is not None:
        value = os.environ.get(variable, "").strip()
        place = f"environment variable {variable}"
    else:
        return None
    if not value:
        raise ConfigError(f"{what}: {place} is empty or not set")
    return value


def exposed(file: Path | None) -> bool:
    """Whether other users of this machine can read a secret's file."""
    try:
        return file is not None and bool(file.expanduser().stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


class Tokens:
    """The configured tokens, kept as digests."""

    def __init__(self, tokens: Iterable[tuple[str, Role, str]]) -> None:
        self._entries = [(name, role, _digest(value)) for name, role, value in tokens]

    @classmethod
    def read(cls, settings: Iterable[TokenSettings]) -> Tokens:
        """Read every token from where the settings say.

        Raises:
            ConfigError: one cannot be read, is too short, or two are the same.
        """
        values: list[tuple[str, Role, str]] = []
        for entry in settings:
            what = f"token {entry.name}"
            value = (
                entry.token.get_secret_value()
                if entry.token is not None
                else secret(what, entry.token_file, entry.token_env) or ""
            )
            if len(value) < MIN_TOKEN or not value.isascii() or not value.isprintable():
                raise ConfigError(
                    f"{what}: needs at least {MIN_TOKEN} printable ASCII characters; "
                    f"make one with: {MAKE_TOKEN}"
                )
            if any(value == other for _, _, other in values):
                raise ConfigError(f"{what}: is the same as another token")
            values.append((entry.name, entry.role, value))
        return cls(values)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def find(self, value: str) -> Caller | None:
        """The holder of ``value``, found in a time that does not depend on it."""
        digest = _digest(value)
        found: Caller | None = None
        for name, role, known in self._entries:
            if hmac.compare_digest(known, digest):
                found = Caller(name, role is Role.OPERATE)
        return found


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


_bearer = HTTPBearer(auto_error=False, description="A token from the settings; none on loopback.")


def reader(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Caller:
    """The caller, who may see."""
    tokens: Tokens = request.app.state.tokens
    if not tokens:
        # Without tokens the server listens on loopback only; the settings refuse anything else.
        return Caller(None, may_operate=True)
    caller = tokens.find(credentials.credentials) if credentials else None
    if caller is None:
        given = "this token is not known" if credentials else "this needs a token"
        raise ProblemError(
            401,
            "unauthorised",
            f"{given}: send Authorization: Bearer TOKEN with one from the control plane's settings",
            {"WWW-Authenticate": "Bearer"},
        )
    return caller


def operator(caller: Annotated[Caller, Depends(reader)]) -> Caller:
    """The caller, who may change."""
    if not caller.may_operate:
        raise ProblemError(
            403,
            "read_only_token",
            f"token {caller.name} has role read: use one with role operate to change anything",
        )
    return caller


class HostGuard:
    """Refuses requests that a foreign web page made a browser send.

    On loopback a page can name its own domain with an address of 127.0.0.1 (DNS rebinding); the
    Host header gives it away.  A page can also send a write across sites; its Origin does.

    Args:
        hosts: names that the Host header may carry; None to allow any (tokens protect then).
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check an HTTP request, pass everything else on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = _host(headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            response = problems.answer(
                421,
                "foreign_host",
                f"this server is not {host or 'without a name'}: use the address it listens on, or "
                "add the name to listen.hosts",
            )
            await response(scope, receive, send)
            return
        origin = headers.get("origin")
        if origin and scope["method"] not in _SAFE and _host(urlsplit(origin).netloc) != host:
            response = problems.answer(
                403, "foreign_origin", "changes asked for by another site's page are refused"
            )
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _host(value: str) -> str:
    """The name in a Host header, without its port."""
    value = value.strip().lower()
    if value.startswith("["):
        return value.partition("]")[0].lstrip("[")
    return value.rpartition(":")[0] if ":" in value else value


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """The names that may stand in the Host header; None where any may."""
    bound = settings.listen.host
    if not is_loopback(bound):
        return None
    own = {"localhost", "127.0.0.1", "::1", bound.strip("[]").lower()}
    return frozenset(own | {name.lower() for name in settings.listen.hosts})
