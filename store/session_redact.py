"""Taking names and URLs out of a recording while it stays replayable.  Pure.

Every name becomes ``kind-DIGEST``, the same one everywhere, so that what was equal stays equal and
a replay of the redacted file still comes to the recorded verdicts, texts included.  A digest of a
name that can be guessed can be confirmed by whoever guesses it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

_ADDRESS = re.compile(
    r"(?:https?|grpc|tcp)://[^\s\"'<>\\,;)\]}]+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\](?::\d+)?"
)
"""URLs, IPv4 and bracketed IPv6 addresses."""
_PATH = re.compile(r"(?<![\w./~-])~?/(?:[\w.@+-]+/)+[\w.@+-]*")
"""Absolute paths of at least two parts."""
_ROUTES = frozenset({"/v1/loads"})
"""Paths that name an endpoint of SGLang, not a file."""
_WORDS = frozenset(
    """auto on off none null true false keep warm cold active shadow paused service engine sglang
    sample gap metrics override""".split()  # noqa: SIM905 (a list of words reads better so)
)
"""Vocabulary that is never taken for a name."""
_EDGE = r"[A-Za-z0-9_]"


def digest(kind: str, text: str) -> str:
    """The stand-in of a name: 48 bits of its SHA-256."""
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Redactor:
    """Replaces known names, and anything that looks like an address or an absolute path.

    Args:
        names: name to its kind ("engine", "person", "host", "model", ...).
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._stand_ins: dict[str, str] = {}
        for name, kind in names.items():
            if len(name) > 1 and name.lower() not in _WORDS:
                self._stand_ins[name] = digest(kind, name)
        # The longest first: a host's name may be part of a holder's.
        ordered = sorted(self._stand_ins, key=lambda name: (-len(name), name))
        self._known = (
            re.compile("|".join(f"(?<!{_EDGE}){re.escape(name)}(?!{_EDGE})" for name in ordered))
            if ordered
            else None
        )

    def text(self, text: str) -> str:
        """A text without them."""
        if self._known is not None:
            text = self._known.sub(lambda found: self._stand_ins[found.group()], text)
        text = _ADDRESS.sub(lambda found: digest("url", found.group()), text)
        return _PATH.sub(
            lambda found: (
                found.group() if found.group() in _ROUTES else digest("path", found.group())
            ),
            text,
        )

    def value(self, value: Any) -> Any:
        """JSON with every string redacted; the keys of objects are not names."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {key: self.value(one) for key, one in value.items()}
        return value

    def json(self, body: str) -> str:
        """A JSON text, redacted."""
        return json.dumps(self.value(json.loads(body)), ensure_ascii=False, separators=(",", ":"))

    def tick(self, body: bytes) -> bytes:
        """A tick's text (``store.tick_codec``), redacted."""
        return self.json(body.decode()).encode()


def names_of(
    *,
    engine_id: str,
    engine: Mapping[str, Any] | None,
    holders: Iterable[str],
    people: Iterable[str],
    session: str = "",
) -> dict[str, str]:
    """The names of a recording, by kind.

    Args:
        engine: JSON of the ``EngineRecord``.
        holders: who claimed the engine, written ``specdeck@HOST`` by default.
        people: authors.
        session: the recording's own name; it is kept unless it is a name of something else.
    """
    names: dict[str, str] = {engine_id: "engine"}
    if engine:
        names |= {str(engine[key]): "engine" for key in ("name", "group") if engine.get(key)}
        url = str(engine.get("url") or "")
        host = urlsplit(url).hostname
        if host:
            names[host] = "host"
        identity = (engine.get("facts") or {}).get("identity") or {}
        for key in ("model", "draft_model"):
            if identity.get(key):
                names[str(identity[key])] = "model"
    for holder in holders:
        names[holder] = "holder"
        for part in re.split(r"[@/:]", holder):
            if part and part != "specdeck":
                names[part] = "host"
    names |= dict.fromkeys(people, "person")
    names.pop(session, None)
    names.pop("", None)
    return names
