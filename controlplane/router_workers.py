"""What SGLang's router answers about its workers.  Pure.

Two shapes are known: ``GET /workers`` of the Model Gateway and of later routers
(``{"workers": [{"url", "worker_type", "connection_mode", …}], …}``) and ``GET /list_workers`` of
earlier ones (``{"urls": […]}``).  Source: sgl-project/sglang, ``sgl-router/src/server.rs`` and
``sgl-model-gateway/src/protocols/worker_spec.rs``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.errors import SourceError

_RANK = re.compile(r"@\d+$")
"""A router that knows DP ranks lists each as a worker: the engine's URL and ``@RANK``."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The engines behind a router.

    Args:
        urls: one per engine, in the router's order.
        skipped: workers that are none of ours to look after, each with its reason.
    """

    urls: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def read_workers(body: bytes) -> Workers:
    """Read an answer of either shape; keys that are not known are ignored.

    Raises:
        SourceError: it is neither.
    """
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SourceError("what it answers is no JSON: is its url that of a router?") from error
    told = told if isinstance(told, dict) else {}
    listed = told.get("workers", told.get("urls"))
    if not isinstance(listed, list):
        raise SourceError("its answer lists no workers: is its url that of a router?")
    urls: dict[str, None] = {}
    skipped: list[str] = []
    for entry in listed:
        worker = {"url": entry} if isinstance(entry, str) else entry
        url = worker.get("url") if isinstance(worker, dict) else None
        if not isinstance(url, str) or not url:
            skipped.append("a worker without a URL")
            continue
        reason = _unfit(worker, url)
        if reason:
            skipped.append(f"{url}: {reason}")
        else:
            urls[_RANK.sub("", url).rstrip("/")] = None
    return Workers(tuple(urls), tuple(skipped))


def _unfit(worker: Mapping[str, Any], url: str) -> str:
    """Why a worker cannot be looked after; "" if it can."""
    if worker.get("worker_type") == "prefill":
        return "a prefill worker decodes nothing"
    connection = worker.get("connection_mode")
    grpc = isinstance(connection, str) and connection.lower().startswith("grpc")
    if grpc or url.lower().startswith("grpc"):
        return "it is reached by gRPC alone"
    runtime = worker.get("runtime_type")
    if isinstance(runtime, str) and runtime.lower() not in ("", "sglang"):
        return f"it runs {runtime}, not SGLang"
    return ""
