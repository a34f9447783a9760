"""The command ``specdeck web``.  Exit codes: ``docs/cli.md``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from console.cli import CANNOT_START, OK, REFUSED, UNREACHABLE, USAGE
from controlplane.client import DEFAULT_URL, ControlPlaneError, UnreachableError
from engine_patch.dispatch import MISSING_EXTRA, missing_extra

PORT = 7312
LEAST_TOKEN = 16


def run(argv: Sequence[str]) -> int:
    """Serve the console to browsers; returns the exit code."""
    try:
        words = _parser().parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE
    try:
        from console.web import WebServer
        from console.web_visitors import Visitors, wants_token
    except ModuleNotFoundError as error:
        sys.stderr.write(missing_extra("web", error.name or "", "web"))
        return MISSING_EXTRA

    try:
        asks = asyncio.run(wants_token(words.url))
    except UnreachableError as error:
        return _fail(UNREACHABLE, str(error))
    except ControlPlaneError as error:
        return _fail(REFUSED, str(error))
    own: str | None = None
    if not asks:
        try:
            own, place = _own_token(words.login_token_file)
        except (OSError, UnicodeDecodeError, ValueError) as error:
            return _fail(USAGE, f"login token: {error}")
        _say(f"the control plane wants no token: visitors log in with the one in {place}")
    try:
        sock = _bound(words.host, words.port)
    except OSError as error:
        return _fail(
            CANNOT_START, f"cannot listen on {words.host} port {words.port}: {error.strerror}"
        )
    if not _is_loopback(words.host) and not words.public_url.startswith("https://"):
        _say(
            "tokens cross the network in the clear: put TLS in front and give its address with "
            "--public-url https://…"
        )
    options = [name for name in ("readonly", "ascii", "utc") if getattr(words, name)]
    arguments = [words.url, *(f"--{name}" for name in options)]
    server = WebServer(Visitors(words.url, own), arguments, sock, words.public_url)
    asyncio.run(server.run(_ready))
    return OK


def _ready(url: str) -> None:
    sys.stdout.write(json.dumps({"ready": True, "url": url, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()


def _own_token(file: Path | None) -> tuple[str, Path]:
    """The token of this console and where it is; without a file a new one that only we can read."""
    if file is not None:
        token = file.expanduser().read_text(encoding="utf-8").strip()
        if len(token) < LEAST_TOKEN:
            raise ValueError(f"{file} holds less than {LEAST_TOKEN} characters")
        return token, file
    token = secrets.token_urlsafe(24)
    handle, name = tempfile.mkstemp(prefix="specdeck-web-", suffix=".token")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(f"{token}\n")
    return token, Path(name)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdeck web", description="The console in a browser, behind a login."
    )
    parser.add_argument(
        "url",
        nargs="?",
        default=os.environ.get("SPECDECK_URL", DEFAULT_URL),
        help="the control plane (SPECDECK_URL; default: %(default)s)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (loopback)")
    parser.add_argument("--port", type=int, default=PORT, help="port; 0 takes a free one")
    parser.add_argument(
        "--public-url", default="", metavar="URL", help="its address in browsers, behind a proxy"
    )
    parser.add_argument(
        "--login-token-file",
        type=Path,
        metavar="FILE",
        help="what visitors log in with where the control plane wants no token",
    )
    parser.add_argument("--readonly", action="store_true", help="nobody changes anything from here")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII alone")
    parser.add_argument("--utc", action="store_true", help="show times in UTC, not local time")
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"specdeck web: {text}\n")
    sys.stderr.flush()


def _fail(code: int, text: str) -> int:
    _say(text)
    return code
