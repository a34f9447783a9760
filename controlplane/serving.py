"""What ``specdeck serve`` does: settings, port, store, then serve until a signal."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from controlplane.api import create_app
from controlplane.security import EngineKeys, Tokens, exposed
from controlplane.server import CannotListenError, Certificate, bind, make_server
from controlplane.service import Service
from controlplane.settings import Settings, state_dir
from controlplane.settings_load import ConfigError, load
from controlplane.webhooks import hooks_of
from store.db import Store
from store.errors import StoreError


class CannotStartError(Exception):
    """The control plane cannot start; each line of the message says what to do."""


def serve_forever(
    config: Path | None,
    arguments: Mapping[str, object],
    *,
    verbose: bool,
    say: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        arguments: settings from the command line.
        say: told warnings and where it listens, for a person.
        ready: told the URL once requests are answered, for a program.

    Raises:
        CannotStartError: the settings, a secret, the port or the store are in the way.
    """
    logs(verbose)
    try:
        settings, warnings = load(config, arguments)
        tokens = Tokens.read(settings.tokens)
        keys = {engine.id: EngineKeys.read(engine) for engine in settings.engines}
        hooks_of(settings.webhooks)
        certificate = _certificate(settings)
        sock = bind(settings.listen.host, settings.listen.port)
    except (ConfigError, CannotListenError) as error:
        raise CannotStartError(str(error)) from error
    with sock:
        for warning in [*warnings, *_advice(settings)]:
            say(f"warning: {warning}")
        store = _open(settings)
        service = Service(settings, store, keys=keys)
        host, port = sock.getsockname()[:2]
        scheme = "http" if certificate is None else "https"
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        say(
            f"control plane on {url}, engines: {', '.join(service.runners) or 'none'}, "
            f"database {store.name}"
        )
        app = create_app(service, settings, tokens)
        server = make_server(app, service.hub, on_ready=lambda: ready(url), certificate=certificate)
        try:
            asyncio.run(server.serve(sockets=[sock]))
        except SystemExit as error:
            # Uvicorn's own way to say that the application did not start; it has logged why.
            raise CannotStartError("the control plane did not start; the log says why") from error


def _certificate(settings: Settings) -> Certificate | None:
    chain, key = settings.listen.tls_cert, settings.listen.tls_key
    if chain is None or key is None:
        return None
    certificate = Certificate(chain.expanduser(), key.expanduser())
    certificate.check()
    return certificate


def _open(settings: Settings) -> Store:
    try:
        if not settings.database:
            # Only the folder of our own default place is made; another one may be a typing error.
            state_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
        return Store.open(settings.database_location)
    except OSError as error:
        raise CannotStartError(
            f"{state_dir()} cannot be made: {error.strerror}; choose another place with --database"
        ) from error
    except StoreError as error:
        raise CannotStartError(str(error)) from error


def _advice(settings: Settings) -> list[str]:
    out = []
    if not (settings.engines or settings.engines_file or settings.routers):
        out.append(
            "no engine is configured: add an [[engines]] table, --engine URL, engines_file or a "
            "[[routers]] table"
        )
    out += [
        f"the file of token {token.name} can be read by every user of this machine: chmod 600 it"
        for token in settings.tokens
        if exposed(token.token_file)
    ]
    out += [
        f"the admin key file of engine {engine.id} can be read by every user of this machine: "
        "chmod 600 it"
        for engine in settings.engines
        if exposed(engine.admin_key_file)
    ]
    return out


def logs(verbose: bool) -> None:
    """Log to stderr; libraries only when something is wrong, because they name every request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("specdeck").setLevel(logging.DEBUG if verbose else logging.INFO)
