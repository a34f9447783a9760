"""Links to one moment: a control plane, an engine, an observation, a screen.  Pure.

``http://HOST:PORT/#engine=h200-0&seq=1148&at=2026-11-29T12:03:45Z&screen=decisions``.  The moment
stands in the fragment, which is never sent to a server, and no secret is ever part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from console.places import BY_ID, FIRST


class LinkError(ValueError):
    """This is no link; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a link names.

    Args:
        url: the control plane's base URL.
        seq: the observation, None for the present.
        place: the screen.
    """

    url: str
    engine_id: str
    seq: int | None = None
    place: str = FIRST


def written(moment: Moment, at_utc_ms: int | None = None) -> str:
    """The link; ``at_utc_ms`` is for people, the observation's number decides."""
    parts = urlsplit(moment.url)
    # A name and password in the address stay here.
    host = parts.netloc.rpartition("@")[2]
    query: list[tuple[str, str]] = [("engine", moment.engine_id)]
    if moment.seq is not None:
        query.append(("seq", str(moment.seq)))
    if at_utc_ms is not None:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_utc_ms)
        query.append(("at", at.strftime("%Y-%m-%dT%H:%M:%SZ")))
    query.append(("screen", moment.place))
    fragment = urlencode(query, quote_via=quote, safe=":")
    path = parts.path.rstrip("/") + "/"
    return urlunsplit((parts.scheme, host, path, "", fragment))


def read(text: str) -> Moment:
    """What a link names.

    Raises:
        LinkError: it is no such link.
    """
    try:
        parts = urlsplit(text.strip())
        host = parts.hostname
    except ValueError as error:
        raise LinkError(f"{text!r} is no link: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise LinkError(f"{text!r} is no link: it begins with http:// and a host; L copies one")
    named = dict(parse_qsl(parts.fragment))
    engine_id = named.get("engine", "")
    if not engine_id:
        raise LinkError("this link names no engine: it ends in #engine=ID&seq=N; L copies one")
    seq: int | None = None
    if "seq" in named:
        if not named["seq"].isdecimal() or len(named["seq"]) > 18:
            raise LinkError(f"seq={named['seq']} in this link is no observation number")
        seq = int(named["seq"])
    place = named.get("screen", FIRST)
    if place not in BY_ID:
        raise LinkError(f"screen={place} in this link is none of {', '.join(BY_ID)}")
    base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    return Moment(base, engine_id, seq, place)
