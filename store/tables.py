"""SQLModel tables: how records lie in the database.

Rows only store.  A table model validates nothing, so everything is checked by the records on both
ways.  Columns exist for what is filtered, ordered, kept unique or read by hand; the rest of a
record is its JSON in ``body``, so that a record's new field needs no new column.  Times are integer
milliseconds, enumerations their written values.

The DDL that makes these tables is in ``store.migrations`` and ``store.postgres_schema``; tests hold
them together.
"""

from __future__ import annotations

from typing import Annotated

from sqlalchemy import BigInteger, Dialect, TypeDecorator
from sqlalchemy import Text as PlainText
from sqlmodel import Field, SQLModel


class ExactText(TypeDecorator[str]):
    """Any text.  PostgreSQL cannot hold a NUL, so there it is written as two other characters."""

    impl = PlainText
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text as it is stored."""
        if value is None or dialect.name != "postgresql":
            return value
        return value.replace("\x1a", "\x1a1").replace("\0", "\x1a0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """The text that was stored."""
        if value is None or dialect.name != "postgresql":
            return value
        return value.replace("\x1a0", "\0").replace("\x1a1", "\x1a")


Number = Annotated[int, Field(sa_type=BigInteger)]
OptionalNumber = Annotated[int | None, Field(sa_type=BigInteger)]
Text = Annotated[str, Field(sa_type=ExactText)]


class MetaRow(SQLModel, table=True):
    """Facts about the file itself, for example ``needs_specdeck``."""

    __tablename__ = "meta"

    key: Text = Field(primary_key=True, sa_type=ExactText)
    value: Text


class EngineRefRow(SQLModel, table=True):
    """A small integer for each engine id, because a tick cannot afford the name."""

    __tablename__ = "engine_refs"

    ref: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text


class EngineRow(SQLModel, table=True):
    """``EngineRecord``, one row per engine, the newest wins."""

    __tablename__ = "engines"

    engine_id: Text = Field(primary_key=True, sa_type=ExactText)
    added_utc_ms: Number
    body: Text


class TickRow(SQLModel, table=True):
    """``Tick``; ``body`` is packed by ``store.tick_codec``."""

    __tablename__ = "ticks"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_ref: Number
    seq: Number
    at_utc_ms: Number
    is_gap: Number
    template_id: OptionalNumber
    body: bytes


class TickTemplateRow(SQLModel, table=True):
    """The text of one earlier tick, against which later ones of its engine are packed."""

    __tablename__ = "tick_templates"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_ref: Number
    body: bytes


class ScrapeRow(SQLModel, table=True):
    """``RawScrape``, compressed."""

    __tablename__ = "scrapes"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_ref: Number
    seq: Number
    at_utc_ms: Number
    path: Text
    body: bytes


class InputRow(SQLModel, table=True):
    """``ControlInput``; ``body`` is compressed."""

    __tablename__ = "inputs"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_ref: Number
    after_seq: Number
    kind: Text
    at_utc_ms: Number
    body: bytes


class DecisionRow(SQLModel, table=True):
    """``Decision``, one per engine and observation."""

    __tablename__ = "decisions"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text
    seq: Number
    at_utc_ms: Number
    to_tier: Text
    outcome: Text
    body: Text


class SwitchRow(SQLModel, table=True):
    """``EngineSwitch``; ``number`` is the journal's own numbering."""

    __tablename__ = "switches"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text
    boot_id: Text
    dp_rank: Number
    number: Number
    seen_utc_ms: Number
    body: Text


class OverrideRow(SQLModel, table=True):
    """``Override``; in force while ``ended_utc_ms`` is null."""

    __tablename__ = "overrides"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text
    created_utc_ms: Number
    expires_utc_ms: Number
    ended_utc_ms: OptionalNumber
    body: Text


class PolicyRow(SQLModel, table=True):
    """``PolicyConfig``, every version ever in force."""

    __tablename__ = "policies"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text
    version: Number
    created_utc_ms: Number
    body: Text


class AuditRow(SQLModel, table=True):
    """``AuditEntry``.  Triggers refuse every change and removal."""

    __tablename__ = "audit"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    at_utc_ms: Number
    actor: Text
    action: Text
    target: Text
    detail: Text
    hash: Text = ""


class MarkerRow(SQLModel, table=True):
    """``Marker``."""

    __tablename__ = "markers"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text
    seq: Number
    at_utc_ms: Number
    body: Text


class SessionRow(SQLModel, table=True):
    """``SessionRecord``; open while ``ended_utc_ms`` is null."""

    __tablename__ = "sessions"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text
    name: Text
    started_utc_ms: Number
    ended_utc_ms: OptionalNumber
    body: Text


class BenchmarkRow(SQLModel, table=True):
    """``BenchmarkPoint``."""

    __tablename__ = "benchmark_points"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    engine_id: Text
    setup_key: Text
    at_utc_ms: Number
    body: Text


class CostTableRow(SQLModel, table=True):
    """``CostTable``; the newest of a setup key counts."""

    __tablename__ = "cost_tables"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    setup_key: Text
    created_utc_ms: Number
    body: Text


class KeptAnswerRow(SQLModel, table=True):
    """``KeptAnswer``, one per caller and key."""

    __tablename__ = "kept_answers"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    caller: Text
    key: Text
    at_utc_ms: Number
    body: Text


class FleetRuleRow(SQLModel, table=True):
    """``FleetRule``; in force while ``ended_utc_ms`` is null."""

    __tablename__ = "fleet_rules"

    id: OptionalNumber = Field(default=None, primary_key=True, sa_type=BigInteger)
    created_utc_ms: Number
    ended_utc_ms: OptionalNumber
    body: Text
