"""The ``specdeck`` command: finds a command group among the entry points and runs it.

Standard library only, and nothing is imported before it is known which command is wanted: the
command line must answer at once, and must answer at all where an extra is not installed.

A command is an entry point of group ``specdeck.commands`` whose value is a callable
``run(argv: list[str]) -> int | None``.  Exit codes are listed in ``docs/cli.md``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import metadata, util

DISTRIBUTION = "specdeck"
GROUP = "specdeck.commands"
OUR_PACKAGES = frozenset({"console", "controlplane", "engine_patch", "store"})

OK = 0
USAGE = 2
UNREACHABLE = 3
CANNOT_START = 5
MISSING_EXTRA = 7
INTERRUPTED = 130

DEFAULT_URL = "http://127.0.0.1:7311"
"""Where ``specdeck serve`` listens unless told otherwise."""
URL_VARIABLE = "SPECDECK_URL"
PROBE_TIMEOUT_S = 0.5

_SUMMARIES = {
    "audit": "who changed what, and proof that nobody changed the record",
    "bench": "measure up to where speculation pays, and use the result",
    "compare": "compare two recorded sessions at the same load",
    "console": "watch and steer engines on a live screen",
    "demo": "an embedded engine, traffic, control plane and console in one go",
    "doctor": "explain an engine in plain words: what it can do, what is wrong",
    "engine": "check whether the plugin fits the SGLang installed here",
    "open": "open the console at the moment that a link names",
    "fleet": "add and remove engines, give a group a policy, take a claim over",
    "override": "set, extend or release an operator's override",
    "pause": "stop automation on many engines",
    "pin": "hold one tier while an evaluation runs",
    "policy": "show, change and take back an engine's policy",
    "record": "name, export and import recordings; record a server",
    "replay": "replay a recording, or verify it",
    "report": "a recording as one HTML page",
    "resume": "let automation act again after pause",
    "serve": "run the control plane",
    "status": "print what the control plane sees",
    "store": "copy the database while it is written, check it, measure it",
    "web": "the console in a browser, behind a login",
    "what-if": "what would another policy have done?",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (``specdeck status | head -1``); keep the interpreter's own flush at
        # exit from failing on the same pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("-h", "--help", "help"):
        _out(_help())
        return OK
    if words and words[0] in ("-V", "--version", "version"):
        _out(f"specdeck {version()}\n")
        return OK
    commands = known_commands()
    if not commands:
        _err(
            "specdeck: no commands are installed: this is a bare checkout; "
            "run: pip install -e '.[controlplane,console]'\n"
        )
        return CANNOT_START
    if not words:
        return _bare(commands)
    name, rest = words[0], words[1:]
    if name not in commands:
        what = "option" if name.startswith("-") else "command"
        _err(f"specdeck: unknown {what} {name!r}; commands: {', '.join(sorted(commands))}\n")
        return USAGE
    return _run(commands[name], rest)


def _run(command: metadata.EntryPoint, argv: list[str]) -> int:
    """Load and call one command; a dependency that is not installed becomes one sentence."""
    try:
        code = command.load()(argv)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "" or missing in OUR_PACKAGES or util.find_spec(missing) is not None:
            # Part of ourselves, or of a distribution that is there: a defect, not a missing extra.
            raise
        _err(missing_extra(command.name, missing, _extra_of(command, missing)))
        return MISSING_EXTRA
    return OK if code is None else int(code)


def _extra_of(command: metadata.EntryPoint, missing: str) -> str:
    """The extra to install: the one named like the command's package, else one that lists it."""
    distribution = metadata.distribution(command.dist.name if command.dist else DISTRIBUTION)
    extras = distribution.metadata.get_all("Provides-Extra") or []
    package = command.module.partition(".")[0]
    if package in extras:
        return package
    for requirement in distribution.requires or []:
        listed = re.match(r"[A-Za-z0-9._-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        if listed and extra and listed.group().replace("-", "_").lower() == missing.lower():
            return extra.group(1)
    return "controlplane"


def missing_extra(command: str, missing: str, *extras: str) -> str:
    """The message of exit code 7: what is missing, and the pip line that brings it."""
    wanted = ",".join(extras)
    return (
        f"specdeck {command}: {missing!r} is not installed here; "
        f"run: pip install '{DISTRIBUTION}[{wanted}]'\n"
    )


def _bare(commands: dict[str, metadata.EntryPoint]) -> int:
    """``specdeck`` alone: the console if a control plane answers, else the demo after a question,
    else how to start one."""
    url = os.environ.get(URL_VARIABLE, DEFAULT_URL)
    if "console" in commands and answers(url):
        return _run(commands["console"], [])
    _err(
        f"specdeck: no control plane answers at {url}\n"
        "  specdeck serve     starts one for your engines\n"
        "  specdeck demo      shows everything without a GPU\n"
        f"  {URL_VARIABLE}=URL specdeck   opens the console of another one\n"
        "  specdeck --help    lists all commands\n"
    )
    if "demo" in commands and sys.stdin.isatty() and sys.stderr.isatty() and _wants_the_demo():
        return _run(commands["demo"], [])
    return UNREACHABLE


def _wants_the_demo() -> bool:
    """Ask; anything but yes is no."""
    _err("Open the demo now? It runs on this machine alone and changes nothing. [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def answers(url: str, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Whether a control plane answers ``GET /healthz`` at ``url`` within ``timeout_s`` seconds."""
    # Brings ssl and email along, half of the whole start-up time: only when it is needed.
    import http.client
    import urllib.parse

    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname, parts.port, timeout=timeout_s)
        try:
            connection.request("GET", parts.path.rstrip("/") + "/healthz")
            return connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException):
        return False


def known_commands() -> dict[str, metadata.EntryPoint]:
    """Every installed command by name; ours win over a foreign entry of the same name."""
    commands: dict[str, metadata.EntryPoint] = {}
    for entry in metadata.entry_points(group=GROUP):
        ours = entry.dist is not None and entry.dist.name == DISTRIBUTION
        if ours or entry.name not in commands:
            commands[entry.name] = entry
    return commands


def version() -> str:
    """The installed version, "unknown" in a checkout that was never installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def _help() -> str:
    lines = [
        "usage: specdeck [COMMAND] [OPTIONS]",
        "",
        "Operator console and control plane for speculative decoding on SGLang.",
        "Without a command: the console, if a control plane answers on this machine; else it",
        "offers the demo.",
        "",
        "commands:",
    ]
    for name, entry in sorted(known_commands().items()):
        origin = entry.dist.name if entry.dist else "unknown"
        lines.append(f"  {name:<10} {_SUMMARIES.get(name, f'from {origin}')}")
    lines += [
        "",
        "options:",
        "  -h, --help     show this text; after a command, that command's own help",
        "  -V, --version  show the version",
        "",
    ]
    return "\n".join(lines)


def _out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _err(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
