"""Answers under idempotency keys: one row per caller and key, for a day or the newest thousands."""

from __future__ import annotations

from pydantic import ValidationError
from sqlalchemy import Connection, delete, update
from sqlmodel import col, select

from store.document_writes import Column, add_row
from store.documents import document, record
from store.idempotency import KeptAnswer, KeptState
from store.tables import KeptAnswerRow

KEEP_MS = 86_400_000
"""How long an answer is kept."""
KEYS = 10_000
"""Most answers that are kept."""


def save_kept_answer(connection: Connection, kept: KeptAnswer) -> int:
    """Put it in place of what is stored under its key; older ones are let go.

    Returns:
        The row's id; 0 if the key was dropped.
    """
    row_id = connection.execute(
        select(KeptAnswerRow.id).where(
            KeptAnswerRow.caller == kept.caller, KeptAnswerRow.key == kept.key
        )
    ).scalar()
    if kept.state is KeptState.DROPPED:
        connection.execute(delete(KeptAnswerRow).where(col(KeptAnswerRow.id) == row_id))
        return 0
    values: dict[str, Column] = {"at_utc_ms": kept.at_utc_ms, "body": document(kept)}
    if row_id is not None:
        connection.execute(
            update(KeptAnswerRow).where(col(KeptAnswerRow.id) == row_id).values(**values)
        )
        return int(row_id)
    made = add_row(connection, KeptAnswerRow, caller=kept.caller, key=kept.key, **values)
    connection.execute(
        delete(KeptAnswerRow).where(
            (col(KeptAnswerRow.at_utc_ms) < kept.at_utc_ms - KEEP_MS)
            | (col(KeptAnswerRow.id) <= made - KEYS)
        )
    )
    return made


def kept_answer(connection: Connection, caller: str, key: str) -> KeptAnswer | None:
    """What is stored under a key; None for an unknown one, and for one that cannot be read."""
    row = connection.execute(
        select(KeptAnswerRow.id, KeptAnswerRow.body).where(
            KeptAnswerRow.caller == caller, KeptAnswerRow.key == key
        )
    ).first()
    if row is None:
        return None
    try:
        return record(KeptAnswer, row[1], row[0])
    except ValidationError:
        return None
