"""Records as JSON documents, for every table but the packed ticks.

A document holds every field, defaults too: a policy's default may change between releases, what was
in force then may not.  The row id is the row's, not the document's.
"""

from __future__ import annotations

import json
import zlib
from typing import TypeVar

from pydantic import BaseModel

_Model = TypeVar("_Model", bound=BaseModel)


def document(record: BaseModel) -> str:
    """The record's JSON without its ``id``.

    Raises:
        ValueError: a number is not finite, which JSON cannot say.
    """
    whole = record.model_dump(mode="json", exclude={"id"})
    return json.dumps(whole, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def record(model: type[_Model], body: str, row_id: int | None = None) -> _Model:
    """The record of a document, with the row's id put in (None: this record has none).

    Raises:
        ValueError: the document does not describe such a record.
    """
    if row_id is not None:
        body = f'{{"id":{row_id},{body.removeprefix("{")}'
    return model.model_validate_json(body)


def squeeze(text: str) -> bytes:
    """A long text, compressed."""
    return zlib.compress(text.encode(), 6)


def expand(body: bytes) -> str:
    """The text of ``squeeze``.

    Raises:
        ValueError, zlib.error: the bytes are damaged.
    """
    return zlib.decompress(body).decode()
