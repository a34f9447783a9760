"""How a tick becomes a few hundred bytes, and exactly the same tick again.

A tick's text is its JSON without defaults, without the row's own columns (id, sequence number,
time, kind).  Neighbouring ticks of an engine differ in a few numbers, so a text is deflated with an
earlier text of the same engine, the *template*, as preset dictionary.  Any tick is read with its
template alone; the checksum of the zlib format covers text and template both.

Because defaults are left out, a default that a stored field once had must stay
(``store.migrations``).
"""

from __future__ import annotations

import json
import zlib

from store.records import Tick

_HEAD = b'{"observation":{'
_LEVEL = 6


def text_of(tick: Tick) -> bytes:
    """The tick's text: JSON bytes that begin with the observation.

    Raises:
        ValueError: a number is not finite, or a string is no Unicode text.
    """
    whole = tick.model_dump(mode="json", exclude={"id"}, exclude_defaults=True)
    observation = whole.pop("observation")
    for column in ("kind", "seq", "at_utc_ms"):
        observation.pop(column, None)
    # JSON has no infinity or NaN: written as null they would come back as something else.
    return json.dumps(
        {"observation": observation, **whole},
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()


def pack(text: bytes, template: bytes) -> bytes:
    """Deflate a tick's text against ``template`` (empty: against nothing)."""
    packer = zlib.compressobj(_LEVEL, zdict=template) if template else zlib.compressobj(_LEVEL)
    return packer.compress(text) + packer.flush()


def unpack(
    body: bytes, template: bytes, *, row_id: int, seq: int, at_utc_ms: int, is_gap: bool
) -> Tick:
    """The tick of a row.

    Raises:
        ValueError: the row is damaged (``zlib.error`` for a bad checksum or template).
    """
    text = unpack_text(body, template)
    return tick_of(text, row_id=row_id, seq=seq, at_utc_ms=at_utc_ms, is_gap=is_gap)


def unpack_text(body: bytes, template: bytes) -> bytes:
    """The text that ``pack`` was given.

    Raises:
        ValueError: the row is damaged (``zlib.error`` for a bad checksum or template).
    """
    unpacker = zlib.decompressobj(zdict=template) if template else zlib.decompressobj()
    text = unpacker.decompress(body) + unpacker.flush()
    if not unpacker.eof or not text.startswith(_HEAD):
        raise ValueError("the packed tick is incomplete")
    return text


def tick_of(text: bytes, *, row_id: int, seq: int, at_utc_ms: int, is_gap: bool) -> Tick:
    """The tick of a text and the row's own columns; ValueError if it is none."""
    kind = b"gap" if is_gap else b"sample"
    columns = b'{"id":%d,"observation":{"kind":"%s","seq":%d,"at_utc_ms":%d,'
    head = columns % (row_id, kind, seq, at_utc_ms)
    return Tick.model_validate_json(head + text[len(_HEAD) :])
