"""SQLModel tables: how records lie in the database.

Rows only store.  A table model validates nothing, so everything is checked by the records on both
ways.  Columns exist for what is filtered, ordered, kept unique or read by hand; the rest of a
record is its JSON in ``body``, so that a record's new field needs no new column.  Times are integer
milliseconds, enumerations their written values.

The DDL that makes these tables is in ``store.migrations``; a test holds the two together.
"""

from __future__ import annotations

from sqlmodel import Field, SQLModel


class MetaRow(SQLModel, table=True):
    """Facts about the file itself, for example ``needs_specdeck``."""

    __tablename__ = "meta"

    key: str = Field(primary_key=True)
    value: str


class EngineRefRow(SQLModel, table=True):
    """A small integer for each engine id, because a tick cannot afford the name."""

    __tablename__ = "engine_refs"

    ref: int | None = Field(default=None, primary_key=True)
    engine_id: str


class EngineRow(SQLModel, table=True):
    """``EngineRecord``, one row per engine, the newest wins."""

    __tablename__ = "engines"

    engine_id: str = Field(primary_key=True)
    added_utc_ms: int
    body: str


class TickRow(SQLModel, table=True):
    """``Tick``; ``body`` is packed by ``store.tick_codec``."""

    __tablename__ = "ticks"

    id: int | None = Field(default=None, primary_key=True)
    engine_ref: int
    seq: int
    at_utc_ms: int
    is_gap: int
    template_id: int | None
    body: bytes


class TickTemplateRow(SQLModel, table=True):
    """The text of one earlier tick, against which later ones of its engine are packed."""

    __tablename__ = "tick_templates"

    id: int | None = Field(default=None, primary_key=True)
    engine_ref: int
    body: bytes


class ScrapeRow(SQLModel, table=True):
    """``RawScrape``, compressed."""

    __tablename__ = "scrapes"

    id: int | None = Field(default=None, primary_key=True)
    engine_ref: int
    seq: int
    at_utc_ms: int
    path: str
    body: bytes


class InputRow(SQLModel, table=True):
    """``ControlInput``; ``body`` is compressed."""

    __tablename__ = "inputs"

    id: int | None = Field(default=None, primary_key=True)
    engine_ref: int
    after_seq: int
    kind: str
    at_utc_ms: int
    body: bytes


class DecisionRow(SQLModel, table=True):
    """``Decision``, one per engine and observation."""

    __tablename__ = "decisions"

    id: int | None = Field(default=None, primary_key=True)
    engine_id: str
    seq: int
    at_utc_ms: int
    to_tier: str
    outcome: str
    body: str


class SwitchRow(SQLModel, table=True):
    """``EngineSwitch``; ``number`` is the journal's own numbering."""

    __tablename__ = "switches"

    id: int | None = Field(default=None, primary_key=True)
    engine_id: str
    boot_id: str
    dp_rank: int
    number: int
    seen_utc_ms: int
    body: str


class OverrideRow(SQLModel, table=True):
    """``Override``; in force while ``ended_utc_ms`` is null."""

    __tablename__ = "overrides"

    id: int | None = Field(default=None, primary_key=True)
    engine_id: str
    created_utc_ms: int
    expires_utc_ms: int
    ended_utc_ms: int | None
    body: str


class PolicyRow(SQLModel, table=True):
    """``PolicyConfig``, every version ever in force."""

    __tablename__ = "policies"

    id: int | None = Field(default=None, primary_key=True)
    engine_id: str
    version: int
    created_utc_ms: int
    body: str


class AuditRow(SQLModel, table=True):
    """``AuditEntry``.  Triggers refuse every change and removal."""

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at_utc_ms: int
    actor: str
    action: str
    target: str
    detail: str
    hash: str = ""


class MarkerRow(SQLModel, table=True):
    """``Marker``."""

    __tablename__ = "markers"

    id: int | None = Field(default=None, primary_key=True)
    engine_id: str
    seq: int
    at_utc_ms: int
    body: str


class SessionRow(SQLModel, table=True):
    """``SessionRecord``; open while ``ended_utc_ms`` is null."""

    __tablename__ = "sessions"

    id: int | None = Field(default=None, primary_key=True)
    engine_id: str
    name: str
    started_utc_ms: int
    ended_utc_ms: int | None
    body: str


class BenchmarkRow(SQLModel, table=True):
    """``BenchmarkPoint``."""

    __tablename__ = "benchmark_points"

    id: int | None = Field(default=None, primary_key=True)
    engine_id: str
    setup_key: str
    at_utc_ms: int
    body: str


class CostTableRow(SQLModel, table=True):
    """``CostTable``; the newest of a setup key counts."""

    __tablename__ = "cost_tables"

    id: int | None = Field(default=None, primary_key=True)
    setup_key: str
    created_utc_ms: int
    body: str


class KeptAnswerRow(SQLModel, table=True):
    """``KeptAnswer``, one per caller and key."""

    __tablename__ = "kept_answers"

    id: int | None = Field(default=None, primary_key=True)
    caller: str
    key: str
    at_utc_ms: int
    body: str
