"""How a raw scrape becomes a few hundred bytes, and exactly the same text again.  Pure.

Scrapes of one path differ in numbers only.  A text is split into lines; lines that stand in the
same place of an earlier text, the *template*, are left out, and what remains is deflated with the
template as preset dictionary.  Any scrape is read with its template alone.
"""

from __future__ import annotations

import json
import zlib

_LEVEL = 9
_WINDOW = 32_768
"""Bytes of a preset dictionary that deflate can reach."""


def split(text: str) -> list[str]:
    """The parts that are compared: lines, and the members of JSON on one long line."""
    if "\n" in text:
        return text.split("\n")
    return text.replace(",", ",\n").split("\n")


def pack(text: str, template: str | None) -> bytes:
    """Deflate a text against ``template`` (None: against nothing)."""
    if template is None:
        return zlib.compress(text.encode(), _LEVEL)
    lines, known = split(text), split(template)
    joined = "\n" in text
    changed: list[int | str] = []
    same = 0
    for index, line in enumerate(lines):
        if index < len(known) and known[index] == line:
            same += 1
            continue
        if same:
            changed.append(same)
            same = 0
        changed.append(line)
    if same:
        changed.append(same)
    body = json.dumps([joined, changed], ensure_ascii=False, separators=(",", ":")).encode()
    packer = zlib.compressobj(_LEVEL, zdict=template.encode()[-_WINDOW:])
    return packer.compress(body) + packer.flush()


def unpack(body: bytes, template: str | None) -> str:
    """The text again.

    Raises:
        ValueError, zlib.error: the bytes or the template are damaged.
    """
    if template is None:
        return zlib.decompress(body).decode()
    unpacker = zlib.decompressobj(zdict=template.encode()[-_WINDOW:])
    joined, changed = json.loads(unpacker.decompress(body) + unpacker.flush())
    known = split(template)
    lines: list[str] = []
    for part in changed:
        if isinstance(part, int):
            lines += known[len(lines) : len(lines) + part]
        else:
            lines.append(part)
    return "\n".join(lines) if joined else "".join(lines)
