"""Settings of ``specdeck serve``: command line, then environment, then TOML file, then default.

Every field has a type, bounds, a default and one sentence; ``docs/settings.md`` is made from them
(``settings_reference``) and a test fails when it misses one.  ``settings_load`` reads the sources.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from controlplane.settings_access import Listen, Section, TokenSettings, WebhookSettings
from controlplane.settings_storage import Storage
from store.policies import Policy, Stance

PREFIX = "SPECDECK_"
FILE_NAME = "specdeck.toml"
CLIENT_VARIABLES = ("SPECDECK_URL", "SPECDECK_TOKEN", "SPECDECK_TOKEN_FILE")
"""Environment variables of the clients (``status``, ``override``, console), not of ``serve``."""


def _engine_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no engine URL: write http://HOST:PORT")
    if parts.username or parts.password:
        raise ValueError("keep credentials out of the URL: use admin_key_file or admin_key_env")
    return url.rstrip("/")


class EngineOptions(Section):
    """How an engine is looked after, wherever it was found."""

    group: str = Field(default="", max_length=100, description="Group the engine belongs to.")
    admin_key_file: Path | None = Field(
        default=None, description="File holding SGLang's admin API key, sent with commands."
    )
    admin_key_env: str | None = Field(
        default=None, description="Environment variable holding SGLang's admin API key."
    )
    api_key_file: Path | None = Field(
        default=None, description="File holding SGLang's API key, sent with reads."
    )
    api_key_env: str | None = Field(
        default=None, description="Environment variable holding SGLang's API key."
    )
    stance: Stance | None = Field(
        default=None,
        description="active, shadow or paused; a changed value makes a new policy version, unset "
        "starts a real engine in shadow and one with a step-cost table active.",
    )
    policy: Policy | None = Field(
        default=None,
        description="Policy table with kind = 'hysteresis', 'goodput' or 'fixed'; a changed table "
        "makes a new policy version, unset takes the default for the engine's tiers at first "
        "contact.",
    )
    poll_s: float = Field(
        default=0.5, ge=0.05, le=60, description="Seconds between two polls of this engine."
    )
    timeout_s: float = Field(
        default=2.0, gt=0, le=60, description="Seconds an engine may take to answer a request."
    )
    command_timeout_s: float = Field(
        default=2.0,
        gt=0,
        le=600,
        description="Seconds a command may take until every observed rank confirms it.",
    )
    retries: int = Field(
        default=2,
        ge=0,
        le=20,
        description="How often an unconfirmed command is sent again before it is timed out.",
    )
    lease_s: float = Field(
        default=30.0, gt=0, le=86400, description="Lease in seconds on automation's commands."
    )
    stale_after_s: float = Field(
        default=2.0,
        gt=0,
        le=600,
        description="Seconds without a fresh sample after which the metrics count as lost.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.admin_key_file and self.admin_key_env:
            raise ValueError("give admin_key_file or admin_key_env, not both")
        if self.api_key_file and self.api_key_env:
            raise ValueError("give api_key_file or api_key_env, not both")
        return self


class EngineSettings(EngineOptions):
    """One engine to look after."""

    id: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$|^$",
        description="Name in URLs and in the store; made from the URL's host and port if empty.",
    )
    url: Annotated[str, AfterValidator(_engine_url)] = Field(
        description="Base URL of the engine's HTTP server."
    )
    name: str = Field(default="", max_length=100, description="Name shown to people.")

    @model_validator(mode="before")
    @classmethod
    def _name_it(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("id") and isinstance(data.get("url"), str):
            return {**data, "id": engine_id(data["url"])}
        return data


class RouterSettings(Section):
    """One SGLang router whose workers are looked after."""

    url: Annotated[str, AfterValidator(_engine_url)] = Field(
        description="Base URL of the router (SGLang's router or Model Gateway)."
    )
    api_key_file: Path | None = Field(
        default=None, description="File holding the router's API key, sent when it is asked."
    )
    api_key_env: str | None = Field(
        default=None, description="Environment variable holding the router's API key."
    )
    every_s: float = Field(
        default=10.0, ge=1, le=3600, description="Seconds between two looks at its workers."
    )
    gone_after_s: float = Field(
        default=60.0,
        ge=0,
        le=86400,
        description="Seconds that a worker must be missing from the router's answers until its "
        "engine is retired; while the router does not answer nothing is retired.",
    )
    engine: EngineOptions = Field(
        default=EngineOptions(),
        description="How its engines are looked after: the keys of an `[[engines]]` table but id, "
        "url and name. An admin key given here is sent to every worker that the router names.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.api_key_file and self.api_key_env:
            raise ValueError("give api_key_file or api_key_env, not both")
        return self


class Settings(BaseSettings):
    """All settings of ``specdeck serve``."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=None,
        hide_input_in_errors=True,
    )

    listen: Listen = Field(default=Listen(), description="Where the REST API listens.")
    database: str = Field(
        default="",
        description="SQLite file, or URL of a PostgreSQL database "
        "(postgresql+psycopg://USER:PASSWORD@HOST/NAME); empty: specdeck/specdeck.sqlite3 in the "
        "user's state folder (XDG_STATE_HOME, ~/.local/state).",
    )
    engines: tuple[EngineSettings, ...] = Field(
        default=(), description="Engines to look after; --engine URL replaces the list."
    )
    engines_file: Path | None = Field(
        default=None,
        description="TOML or JSON file with further engines, as `[[engines]]` tables; it is "
        "watched, and a file that cannot be used leaves the last good list and raises an alarm.",
    )
    routers: tuple[RouterSettings, ...] = Field(
        default=(), description="SGLang routers whose workers are looked after."
    )
    tokens: tuple[TokenSettings, ...] = Field(
        default=(), description="Tokens; with at least one, every request under /v1 needs one."
    )
    holder: str = Field(
        default="",
        max_length=200,
        description="Name under which engines are claimed, the same after each restart; empty: "
        "specdeck@HOSTNAME:PORT.",
    )
    webhooks: tuple[WebhookSettings, ...] = Field(
        default=(), description="Receivers of signed webhooks on decisions and alarms."
    )
    override_max_s: float = Field(
        default=86400.0,
        gt=0,
        le=7 * 86400,
        description="Longest time in seconds an override may still have to run.",
    )
    storage: Storage = Field(
        default=Storage(), description="How long what is kept, and when its size is an alarm."
    )
    scrape_every_s: float = Field(
        default=30.0, ge=1, le=3600, description="Seconds between two kept raw scrapes."
    )

    stagger_s: float = Field(
        default=5.0,
        ge=0,
        le=3600,
        description="Length in seconds of a slot in which only a share of a group's engines may "
        "begin a change; 0 lets all change at any time. Guards and overrides never wait.",
    )
    stagger_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="Share of a group's engines that may begin a change in one slot.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for what, names in (
            ("engine id", [engine.id for engine in self.engines]),
            ("engine url", [engine.url for engine in self.engines]),
            ("router url", [router.url for router in self.routers]),
            ("token name", [token.name for token in self.tokens]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} {', '.join(twice)} appears twice")
        if not self.tokens and not is_loopback(self.listen.host):
            raise ValueError(
                f"listen.host {self.listen.host} is reachable from other machines and no token is "
                "configured: add a [[tokens]] table with role = 'operate' and token_file, or "
                "listen on 127.0.0.1"
            )
        return self

    @property
    def holder_name(self) -> str:
        """The holder of claims; with the port, so that two on one machine do not share one."""
        return self.holder or f"specdeck@{socket.gethostname()}:{self.listen.port}"

    @property
    def database_location(self) -> str:
        """The database to open."""
        return self.database or str(state_dir() / "specdeck.sqlite3")


def engine_id(url: str) -> str:
    """The id of an engine that was given by URL alone: ``HOST-PORT``."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    made = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{parts.hostname or 'engine'}-{port}")
    return made.strip("-._")[:64] or "engine"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def state_dir(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the default database (XDG base directories)."""
    env = os.environ if environ is None else environ
    base = env.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "specdeck"


def config_files(environ: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """Where a TOML file is looked for without ``--config``, in this order."""
    env = os.environ if environ is None else environ
    base = env.get("XDG_CONFIG_HOME")
    user = Path(base) if base else Path.home() / ".config"
    return Path(FILE_NAME), user / "specdeck" / FILE_NAME
