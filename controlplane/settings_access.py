"""Settings about who reaches the control plane and whom it tells: listening, tokens, webhooks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

MIN_TOKEN = 16
MAKE_TOKEN = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"


class Section(BaseModel):
    """A table of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Role(StrEnum):
    """What a token may do: see, or also change."""

    READ = "read"
    OPERATE = "operate"


class Listen(Section):
    """Where the REST API listens."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to bind; any other than loopback needs at least one token.",
    )
    port: int = Field(
        default=7311, ge=0, le=65535, description="TCP port; 0 takes a free one and prints it."
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Further host names that a request may carry in its Host header, besides the "
        "bound address; needed on loopback behind a proxy.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM file with the certificate chain; with tls_key the API is served by HTTPS.",
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file with the private key, without a passphrase."
    )

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give tls_cert and tls_key together, or neither")
        return self


class TokenSettings(Section):
    """One token that clients send as ``Authorization: Bearer``."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Who holds it: the actor of audit rows.",
    )
    role: Role = Field(default=Role.READ, description="read, or operate to change anything.")
    token_file: Path | None = Field(default=None, description="File holding the token.")
    token_env: str | None = Field(
        default=None, description="Environment variable holding the token."
    )
    token: SecretStr | None = Field(
        default=None, description="The token itself; a file is safer, so this warns at start."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [v for v in (self.token_file, self.token_env, self.token) if v is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of token_file, token_env and token")
        return self


def _hook_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no webhook URL: write https://HOST/PATH")
    if parts.username or parts.password:
        raise ValueError("keep credentials out of the URL: deliveries are signed")
    return url


class WebhookSettings(Section):
    """One receiver of signed webhooks."""

    url: Annotated[str, AfterValidator(_hook_url)] = Field(
        description="Where events are posted; docs/webhooks.md describes them."
    )
    events: tuple[Literal["decision", "alarm"], ...] = Field(
        default=("decision", "alarm"), min_length=1, description="What is told: decision, alarm."
    )
    secret_file: Path | None = Field(
        default=None, description="File holding the secret that deliveries are signed with."
    )
    secret_env: str | None = Field(
        default=None, description="Environment variable holding that secret."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.secret_file is None) == (self.secret_env is None):
            raise ValueError("give exactly one of secret_file and secret_env")
        return self
