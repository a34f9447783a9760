"""Who may ask and who may change: secrets, tokens and roles."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from controlplane.errors import ProblemError
from controlplane.settings import EngineSettings
from controlplane.settings_access import MAKE_TOKEN, MIN_TOKEN, Role, TokenSettings
from controlplane.settings_load import ConfigError


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


@dataclass(frozen=True, slots=True)
class EngineKeys:
    """SGLang's keys of one engine: the admin key for commands, the API key for reads."""

    admin: str | None = field(repr=False)
    api: str | None = field(repr=False)

    @classmethod
    def read(cls, engine: EngineSettings) -> EngineKeys:
        """Read them from where the settings say.

        Raises:
            ConfigError: one cannot be read or is empty.
        """
        what = f"engine {engine.id}"
        return cls(
            admin=secret(f"{what}: admin key", engine.admin_key_file, engine.admin_key_env),
            api=secret(f"{what}: API key", engine.api_key_file, engine.api_key_env),
        )


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
