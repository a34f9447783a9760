"""The entry point that SGLang loads in every process (group ``sglang.srt.plugins``).

Nothing of SGLang is imported when this module is.  The first process of an engine compares SGLang
with the table of touched attributes, gives the engine a boot id and a folder of shared memory, and
hands all three to its children in one environment variable; children only register hooks.  On a
mismatch nothing is registered anywhere, one line says why, and SGLang serves on.
"""

from __future__ import annotations

import atexit
import json
import logging
import multiprocessing
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from engine_patch import hooks

log = logging.getLogger("specdeck")

BOOT_VARIABLE = "SPECDECK_ENGINE_BOOT"
"""Handed from the first process to the others; not for users."""


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of an engine, as all its processes know it.

    Args:
        folder: shared memory of the ranks, "" if the plugin refused.
        started_ns: CLOCK_MONOTONIC at the start.
        refused: the refusal in one sentence, "" if there is none.
    """

    boot_id: str
    folder: str
    started_ns: int
    refused: str = ""


def version() -> str:
    """The plugin's version."""
    try:
        return metadata.version("specdeck")
    except metadata.PackageNotFoundError:
        return "unknown"


def register() -> bool:
    """Called by SGLang; whether the plugin is in force in this process."""
    if multiprocessing.parent_process() is not None:
        return _join()
    boot = _start()
    os.environ[BOOT_VARIABLE] = json.dumps(asdict(boot))
    if boot.refused:
        log.error("%s", boot.refused)
        from engine_patch import adapter_http

        message = boot.refused
        adapter_http.when_imported(
            adapter_http.SERVER_MODULE, lambda server: adapter_http.mount_refusal(server, message)
        )
        return False
    _install(boot)
    return True


def _join() -> bool:
    """A child process: do as the first process decided."""
    try:
        boot = Boot(**json.loads(os.environ[BOOT_VARIABLE]))
    except (KeyError, TypeError, ValueError):
        log.warning(
            "specdeck: plugin stays out: this process was not started by an engine's first process"
        )
        return False
    if boot.refused:
        return False
    from engine_patch import adapter

    adapter.install(Path(boot.folder))
    return True


def _start() -> Boot:
    """The first process: decide whether the plugin fits, and make its shared memory."""
    boot_id, started = uuid.uuid4().hex, time.monotonic_ns()
    refused = refusal()
    if not refused:
        from engine_patch import shm

        try:
            folder = shm.Folder.make(boot_id)
        except shm.SharedMemoryError as error:
            refused = (
                f"plugin refused: specdeck {version()} finds no shared memory for SGLang "
                f"{hooks.engine_version()} ({error}); make /dev/shm or TMPDIR writable"
            )
        else:
            atexit.register(folder.close)
            return Boot(boot_id, str(folder.path), started)
    return Boot(boot_id, "", started, refused)


def refusal() -> str:
    """Why the plugin must not register here, in one sentence; "" if it may."""
    root = hooks.engine_root()
    if root is None:
        return f"plugin refused: specdeck {version()} finds no SGLang; install sglang"
    verdict = hooks.check(root)
    if not verdict.fits:
        return verdict.sentence(version())
    for variable, read, example in _variables():
        text = os.environ.get(variable)
        if text is None:
            continue
        try:
            read()
        except ValueError as error:
            return (
                f"plugin refused: specdeck {version()} on SGLang {verdict.version} cannot read "
                f"{variable}={text!r} ({_first_line(error)}); write for example {example!r}"
            )
    return ""


def _variables() -> tuple[tuple[str, Callable[[], object], str], ...]:
    """What a user may set: the variable, its reader, an example."""
    from engine_patch import (
        adapter_launch,
        adapter_off,
        adapter_reserve,
        adapter_room,
        tier_plan,
    )

    def tiers() -> object:
        return tier_plan.parse(os.environ[adapter_launch.TIERS_VARIABLE])

    def limits() -> object:
        return tier_plan.parse_limits(os.environ[adapter_launch.LIMITS_VARIABLE])

    return (
        (adapter_launch.TIERS_VARIABLE, tiers, "off,s1k1d2,s3k1d4"),
        (adapter_launch.LIMITS_VARIABLE, limits, "s2k4d16=16"),
        (adapter_off.VARIABLE, adapter_off.wanted, "plain"),
        (adapter_reserve.VARIABLE, adapter_reserve.wanted, "next"),
        (adapter_room.HEADROOM_VARIABLE, adapter_room.headroom, "check"),
    )


def _install(boot: Boot) -> None:
    from engine_patch import adapter, adapter_http, adapter_launch

    os.environ.pop(adapter_launch.BUILT_VARIABLE, None)
    adapter.install(Path(boot.folder))

    def mount(server: ModuleType) -> None:
        engine = adapter_http.engine_of(server, Path(boot.folder), boot.started_ns, version())
        adapter_http.mount(server, boot.boot_id, engine)

    adapter_http.when_imported(adapter_http.SERVER_MODULE, mount)


def _first_line(error: ValueError) -> str:
    # pydantic's text has one line per problem, headed by the model's name.
    lines = [line.strip() for line in str(error).splitlines()]
    return lines[-1] if len(lines) == 1 else lines[1 if "validation error" in lines[0] else 0]
