"""Rules for a group or the whole fleet: new with id 0, ended by an update, never removed."""

from __future__ import annotations

from sqlalchemy import Connection, update
from sqlmodel import col, select

from store.document_reads import read_document
from store.document_writes import Column, add_row
from store.documents import document
from store.errors import StoreRefused
from store.rules import FleetRule
from store.tables import FleetRuleRow


def save_fleet_rule(connection: Connection, rule: FleetRule) -> int:
    """Store a new rule, or the end of one."""
    values: dict[str, Column] = {
        "created_utc_ms": rule.created_utc_ms,
        "ended_utc_ms": rule.ended_utc_ms,
        "body": document(rule),
    }
    if rule.id == 0:
        return add_row(connection, FleetRuleRow, **values)
    changed = connection.execute(
        update(FleetRuleRow).where(col(FleetRuleRow.id) == rule.id).values(**values)
    )
    if changed.rowcount == 0:
        raise StoreRefused(f"there is no fleet rule {rule.id}: a new one has id 0")
    return rule.id


def fleet_rules(connection: Connection, *, in_force_only: bool) -> list[FleetRule]:
    """Oldest first."""
    query = select(FleetRuleRow.id, FleetRuleRow.body).order_by(col(FleetRuleRow.id))
    if in_force_only:
        query = query.where(col(FleetRuleRow.ended_utc_ms).is_(None))
    return [
        read_document(FleetRule, "fleet_rules", key, key, body)
        for key, body in connection.execute(query)
    ]
