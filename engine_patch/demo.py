"""``specdeck demo``: an engine with simulated times, traffic, control plane and console, at once.

It starts them as processes of their own and imports none of them.  Interactive, the console owns
the terminal until ``q``; with ``--headless`` one run is measured and compared with both fixed
modes.  ``docs/demo.md`` describes both.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import util
from pathlib import Path

from engine_patch import dispatch
from engine_patch.demo_plan import (
    ACCEPT_LENGTH,
    BUSY_CLIENTS,
    MOST_SECONDS,
    ON,
    TIERS,
    Holds,
    Plan,
    TooShortError,
    boundary,
    size,
)
from engine_patch.demo_processes import (
    Child,
    ChildError,
    Children,
    Stopped,
    clean_environment,
    stopped_by,
)
from engine_patch.demo_report import Measured, ReportError, report, text
from engine_patch.demo_rest import AskError, ask, gap_times, last_tick, wait_steering
from engine_patch.embedded.table import NAMES, Table, load
from engine_patch.quiet_port import quiet_port

DEGRADED = 6
ENGINE_ID = "demo"
HEADLESS_SECONDS = 30.0
WATCHED_CYCLE_S = 48.0
"""Length of one swing of the interactive traffic (two quiet and two busy phases)."""
WATCHED_PHASES = 4
WATCHED = Holds(up_s=1.0, down_s=1.0, dwell_s=1.5, poll_s=0.25)
"""Slow enough for the eye to follow what the policy waits for."""
START_S = 20.0
"""Seconds the parts may take to be ready, on a slow machine."""
_NEEDED = ("fastapi", "httpx", "prometheus_client", "pydantic_settings", "sqlmodel", "uvicorn")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(argv: list[str]) -> int:
    """Run ``specdeck demo`` with these words and return its exit code."""
    options = _options(argv)
    if isinstance(options, int):
        return options
    missing = _missing(options.headless)
    if missing:
        return missing
    if not options.headless and not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _fail(
            dispatch.USAGE,
            "this is no terminal to draw on: use "
            f"specdeck demo --headless --seconds {HEADLESS_SECONDS:g} --json",
        )
    table = load(options.table)
    try:
        with (
            stopped_by(*_SIGNALS),
            tempfile.TemporaryDirectory(prefix="specdeck-demo-") as name,
            Children(Path(name), clean_environment(dict(os.environ), Path(name))) as children,
        ):
            demo = _Demo(options, table, children, Path(name))
            return demo.headless() if options.headless else demo.interactive()
    except Stopped as stop:
        # A person's Ctrl-C is a way to end the interactive demo; a measured run is then missing.
        if stop.number == signal.SIGINT and not options.headless:
            return dispatch.OK
        return 128 + stop.number
    except TooShortError as error:
        return _fail(dispatch.USAGE, str(error))
    except (ChildError, AskError, ReportError) as error:
        return _fail(dispatch.CANNOT_START, str(error))


class _Demo:
    """The parts of one demo."""

    def __init__(
        self, options: argparse.Namespace, table: Table, children: Children, folder: Path
    ) -> None:
        self.options = options
        self.table = table
        self.children = children
        self.folder = folder
        self.began = time.monotonic()
        self.engine_url = ""
        self.control_url = ""
        self.engine: Child
        self.control: Child

    def headless(self) -> int:
        """Measure one run and print it."""
        holds = Holds()
        self._start(holds)
        # Meanwhile: the parts need a second to be ready.
        plan = self._plan(holds, self.options.seconds)
        self._wait_ready()
        wait_steering(self.control_url, ENGINE_ID, START_S, self._alive)
        before = last_tick(self.control_url, ENGINE_ID)
        sent_at = time.time() - (time.monotonic() - self.began)
        traffic = self._traffic("--json", "--max-seconds", str(self.options.seconds * 2 + 30))
        load_result = json.loads(self._watch(traffic, self.options.seconds * 2 + 40))
        # One more poll, so that a decision of the last moment is settled.
        time.sleep(2 * holds.poll_s)
        measured = Measured(
            load=load_result,
            decisions=ask(self.control_url, f"/v1/engines/{ENGINE_ID}/decisions?limit=1000"),
            gap_times=gap_times(self.control_url, ENGINE_ID, before),
            simulation=ask(self.engine_url, "/speculation")["simulation"],
            startup_s=load_result["started_utc_ms"] / 1000 - sent_at,
            seed=self.options.seed,
        )
        document = report(plan, measured)
        sys.stdout.write(json.dumps(document) + "\n" if self.options.json else text(document))
        sys.stdout.flush()
        return dispatch.OK if document["valid"] else DEGRADED

    def interactive(self) -> int:
        """Show the console until it is left."""
        _say(f"starting; simulated times: table {self.table.name}")
        self._start(WATCHED)
        self._wait_ready()
        _say(f"control plane on {self.control_url}, engine on {self.engine_url}")
        with self.children.foreground("engine_patch.dispatch", "console", self.control_url) as it:
            self._plan(WATCHED, WATCHED_CYCLE_S, WATCHED_PHASES)
            self._traffic("--repeat", "--max-seconds", "86400", "--max-requests", "200000")
            try:
                return it.wait(self.options.seconds)
            except subprocess.TimeoutExpired:
                return dispatch.OK

    def _start(self, holds: Holds) -> None:
        """Start engine and control plane, side by side."""
        # So the engine's port is chosen here.  Should somebody else take it in between, the engine
        # says so and ends.
        port = quiet_port()
        self.engine_url = f"http://127.0.0.1:{port}"
        self.engine = self.children.start(
            "engine", "engine_patch.embedded",
            "--port", str(port),
            "--table", self.options.table,
            "--tiers", ",".join(TIERS),
            "--launch-tier", ON,
            "--accept", str(ACCEPT_LENGTH),
            "--accept-mode", "exact",
            "--max-running-requests", str(BUSY_CLIENTS),
            "--seed", str(self.options.seed),
        )  # fmt: skip
        config = self.folder / "specdeck.toml"
        config.write_text(self._settings(holds))
        self.control = self.children.start(
            "control", "controlplane", "serve",
            "--config", str(config),
            "--port", str(self.options.port),
        )  # fmt: skip

    def _wait_ready(self) -> None:
        self.engine.wait_line(START_S)
        self.control_url = json.loads(self.control.wait_line(START_S))["url"]

    def _plan(self, holds: Holds, seconds: float, phases: int | None = None) -> Plan:
        plan = size(self.table, seconds, holds, self.options.seed, count=phases)
        (self.folder / "phases.json").write_text(json.dumps(plan.document()))
        return plan

    def _settings(self, holds: Holds) -> str:
        up_at, down_at = boundary(self.table)
        return (
            f"database = {json.dumps(str(self.folder / 'demo.sqlite3'))}\n"
            'holder = "specdeck demo"\n'
            "[[engines]]\n"
            f'id = "{ENGINE_ID}"\n'
            'name = "demo"\n'
            f'url = "{self.engine_url}"\n'
            'stance = "active"\n'
            f"poll_s = {holds.poll_s}\n"
            "[engines.policy]\n"
            'kind = "hysteresis"\n'
            f"tiers = {json.dumps(list(reversed(TIERS)))}\n"
            f"boundaries = [{{ up_at = {up_at}, down_at = {down_at} }}]\n"
            f"up_hold_s = {holds.up_s}\n"
            f"down_hold_s = {holds.down_s}\n"
            f"min_dwell_s = {holds.dwell_s}\n"
            "start_grace_s = 0.0\n"
        )

    def _traffic(self, *more: str) -> Child:
        return self.children.start(
            "traffic", "controlplane.load",
            "--url", self.engine_url,
            "--phases", str(self.folder / "phases.json"),
            "--seed", str(self.options.seed),
            *more,
        )  # fmt: skip

    def _watch(self, traffic: Child, timeout_s: float) -> str:
        """Wait for the traffic's end while the others must live; returns what it wrote."""
        deadline = time.monotonic() + timeout_s
        while traffic.running and time.monotonic() < deadline:
            self._alive()
            time.sleep(0.1)
        return traffic.wait(1.0)

    def _alive(self) -> None:
        self.children.check("engine", "control")


def _options(argv: Sequence[str]) -> argparse.Namespace | int:
    """The parsed words, or the exit code if there is nothing to run."""
    parser = argparse.ArgumentParser(
        prog="specdeck demo",
        description="See the whole loop without a GPU: an engine with simulated times, traffic "
        "that swings between quiet and busy, control plane and console.",
    )
    parser.add_argument(
        "--table", choices=sorted(NAMES), default="fa3", help="measured step times (default fa3)"
    )
    parser.add_argument(
        "--headless", action="store_true", help="no terminal: measure one run and print the result"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"length of the run (headless: default {HEADLESS_SECONDS:g}, at most "
        f"{MOST_SECONDS:g}; else: until q)",
    )
    parser.add_argument("--json", action="store_true", help="with --headless: one JSON object")
    parser.add_argument(
        "--port", type=int, default=0, help="the control plane's port (default: a free one)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the traffic (default 1)")
    try:
        options = parser.parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else dispatch.USAGE
    if options.headless and options.seconds is None:
        options.seconds = HEADLESS_SECONDS
    if options.seconds is not None and not 0 < options.seconds <= MOST_SECONDS:
        return _fail(dispatch.USAGE, f"--seconds lies between 0 and {MOST_SECONDS:g}")
    if not 0 <= options.port <= 65535:
        return _fail(dispatch.USAGE, "--port lies between 0 and 65535; 0 takes a free one")
    if options.json and not options.headless:
        return _fail(dispatch.USAGE, "--json needs --headless")
    return options


def _missing(headless: bool) -> int:
    """Exit code 7 with the pip line if a part of the demo is not installed, else 0."""
    names = _NEEDED if headless else (*_NEEDED, "textual", "httpx_sse")
    extras = ("controlplane",) if headless else ("controlplane", "console")
    for name in names:
        if util.find_spec(name) is None:
            sys.stderr.write(dispatch.missing_extra("demo", name, *extras))
            return dispatch.MISSING_EXTRA
    return 0


def _say(message: str) -> None:
    sys.stderr.write(f"specdeck demo: {message}\n")
    sys.stderr.flush()


def _fail(code: int, message: str) -> int:
    _say(message)
    return code
