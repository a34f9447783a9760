"""The command ``specdeck doctor URL``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from controlplane.client import ControlPlaneClient, ControlPlaneError
from controlplane.diagnosis import Diagnosis, text
from controlplane.doctor import examine, nothing
from controlplane.engine import EngineClient
from controlplane.polled import EngineError
from controlplane.security import secret
from controlplane.settings_load import ConfigError
from controlplane.terminal import (
    DEGRADED,
    REFUSED,
    UNREACHABLE,
    USAGE,
    Json,
    run_app,
    say,
    show,
)
from store.observations import GapReason, PluginStatus, Sample

doctor_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
INFO_S = 3.0
"""Seconds an unpatched server gets to tell its launch flags, which it answers slowly."""


def run(argv: list[str]) -> int:
    """Explain a server."""
    return run_app(doctor_app, argv, "specdeck doctor")


@doctor_app.command()
def doctor(
    url: Annotated[str, typer.Argument(help="The engine's URL, like http://HOST:30000.")],
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with SGLang's API key, if reads need one.")
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, max=60)] = 3.0,
    as_json: Json = False,
) -> None:
    """Explain a server in plain words: version, plugin, tiers, cap, what is wrong, what to do.

    Changes nothing.  Exits with 0 if it can be steered and nothing is wrong, with 6 otherwise.
    """
    try:
        key = secret("API key", api_key_file, None)
    except ConfigError as error:
        say(str(error))
        raise typer.Exit(USAGE) from error
    try:
        diagnosis = asyncio.run(diagnose(url, key, timeout_s))
    except ValueError as error:
        say(str(error))
        raise typer.Exit(USAGE) from error
    if as_json:
        show(json.dumps(diagnosis.model_dump(mode="json") | {"healthy": diagnosis.healthy}))
    else:
        show(text(diagnosis))
    if not diagnosis.healthy:
        codes = {"unreachable": UNREACHABLE, "unauthorised": REFUSED}
        raise typer.Exit(codes.get(diagnosis.state, DEGRADED))


async def diagnose(url: str, api_key: str | None = None, timeout_s: float = 3.0) -> Diagnosis:
    """Look at the server at ``url``; changes nothing.

    Raises:
        ValueError: the URL is none, or the key cannot be sent.
    """
    client = EngineClient("doctor", url, api_key=api_key, timeout_s=timeout_s)
    try:
        return await _look(client, url)
    except EngineError as error:
        return await _explain(error, url)
    finally:
        await client.aclose()


async def _look(client: EngineClient, url: str) -> Diagnosis:
    facts = await client.handshake()
    if facts.plugin is PluginStatus.ABSENT and await _is_control_plane(url):
        # It has metrics of its own and would pass for a server without the plugin.
        return _control_plane(url)
    polled = await client.poll(1)
    until = asyncio.get_running_loop().time() + INFO_S
    while facts.plugin is not PluginStatus.PRESENT and _untold(client):
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(0.2)
        polled = await client.poll(2)
    sample = polled.observation if isinstance(polled.observation, Sample) else None
    return examine(url, client.facts or facts, sample, polled.costs)


def _untold(client: EngineClient) -> bool:
    """Whether the slow answer with the launch flags has not come yet."""
    return client.facts is None or client.facts.identity is None


async def _explain(error: EngineError, url: str) -> Diagnosis:
    if await _is_control_plane(url):
        return _control_plane(url)
    match error.reason:
        case GapReason.UNAUTHORISED:
            return nothing(url, "unauthorised", error.message, "give it with --api-key-file")
        case GapReason.UNREACHABLE:
            do = "check host and port, and whether the server has finished to load"
            return nothing(url, "unreachable", error.message, do)
        case GapReason.TIMEOUT:
            do = "is it still loading, or does it hang? --timeout 20 waits longer"
            return nothing(url, "unreachable", error.message, do)
        case _:
            do = "check that the URL is that of an SGLang server or an embedded engine"
            return nothing(url, "no engine", error.message, do)


def _control_plane(url: str) -> Diagnosis:
    return nothing(
        url,
        "control plane",
        "this is a specdeck control plane, not an engine",
        f"specdeck status --url {url} shows its engines and their URLs",
    )


async def _is_control_plane(url: str) -> bool:
    try:
        async with ControlPlaneClient(url, timeout_s=2.0) as client:
            return (await client.about()).name == "specdeck"
    except ControlPlaneError as error:
        return error.problem is not None
