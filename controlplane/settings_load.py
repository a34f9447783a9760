"""Read the settings from command line, environment and TOML file, and say what is wrong where."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from controlplane import toml_file
from controlplane.settings import CLIENT_VARIABLES, PREFIX, Settings, config_files


class ConfigError(Exception):
    """The settings cannot be used; each line of the message names one mistake and its place."""


def load(
    config: Path | None = None, arguments: Mapping[str, Any] | None = None
) -> tuple[Settings, list[str]]:
    """The settings in force, and warnings about them.

    Args:
        config: the TOML file; None looks in the usual places and does without one.
        arguments: nested values from the command line; they outrank everything.

    Raises:
        ConfigError: with one line per mistake, each naming its place and what is allowed.
    """
    given = dict(arguments or {})
    path = config or next((place for place in config_files() if place.is_file()), None)
    values: dict[str, Any] = {}
    text = ""
    if path is not None:
        try:
            values, text = toml_file.read(path)
        except toml_file.TomlError as error:
            raise ConfigError(str(error)) from error

    class FromAll(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, values)

    try:
        settings = FromAll(**given)
    except ValidationError as error:
        origin = _Origin(given, path, text)
        raise ConfigError("\n".join(origin.line(detail) for detail in error.errors())) from error
    except SettingsError as error:
        raise ConfigError(f"environment: {error}; lists and tables are written as JSON") from error
    return settings, _warnings(settings)


def _warnings(settings: Settings) -> list[str]:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    out = []
    for name in sorted(os.environ):
        if not name.startswith(PREFIX) or name in CLIENT_VARIABLES:
            continue
        if name.split("__")[0] not in known:
            out.append(
                f"environment variable {name} is no setting and is ignored; "
                f"settings are {', '.join(sorted(known))}"
            )
    out += [
        f"token {token.name} stands in clear in the settings: move it to a file (token_file)"
        for token in settings.tokens
        if token.token is not None
    ]
    return out


class _Origin:
    """Says where a refused value came from."""

    def __init__(self, given: Mapping[str, Any], path: Path | None, text: str) -> None:
        self._given = given
        self._path = path
        self._text = text

    def line(self, detail: Any) -> str:
        """One mistake as one line."""
        # Tags of unions ("hysteresis") are part of pydantic's location, not of the file's.
        loc = tuple(
            part for part in detail["loc"] if part not in ("hysteresis", "goodput", "fixed")
        )
        message = str(detail["msg"]).removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            message = f"unknown key; valid here: {', '.join(valid_keys(loc[:-1]))}"
        elif detail["type"] == "missing":
            message = "is required"
        return ": ".join(part for part in (self._place(loc), _dotted(loc), message) if part)

    def _place(self, loc: tuple[str | int, ...]) -> str:
        if loc and _holds(self._given, loc):
            return "command line"
        for length in range(len(loc), 0, -1):
            variable = PREFIX + "__".join(str(part) for part in loc[:length]).upper()
            if any(name.upper() == variable for name in os.environ):
                return f"environment variable {variable}"
        if self._path is None:
            return "settings"
        place = toml_file.locate(self._text, loc)
        return f"{self._path}:{place[0]}:{place[1]}" if place else str(self._path)


def _holds(values: Any, loc: tuple[str | int, ...]) -> bool:
    """Whether nested values decide what is at ``loc``: a list replaces other sources whole, a table
    only the keys it has."""
    for part in loc:
        if not isinstance(values, Mapping):
            return True
        if part not in values:
            return False
        values = values[part]
    return True


def _dotted(loc: tuple[str | int, ...]) -> str:
    out = ""
    for part in loc:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models an annotation may hold, through tuples, unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]


def valid_keys(loc: tuple[str | int, ...]) -> list[str]:
    """The keys allowed in the table at ``loc``."""
    models: list[type[BaseModel]] = [Settings]
    for part in loc:
        if isinstance(part, str):
            fields = [m.model_fields[part] for m in models if part in m.model_fields]
            models = [model for field in fields for model in _models(field.annotation)]
    return sorted({name for model in models for name in model.model_fields})
