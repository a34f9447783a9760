"""Settings about the database: how long what is kept, and when its size is an alarm."""

from __future__ import annotations

from pydantic import Field

from controlplane.settings_access import Section


class Storage(Section):
    """How long what is kept, and when the database's size is an alarm."""

    ticks_days: int = Field(
        default=30,
        ge=0,
        le=3650,
        description="Days that ticks, and what replaying them needs, are kept; 0 for ever.",
    )
    downsample_after_days: int = Field(
        default=7,
        ge=0,
        le=3650,
        description="Days after which one tick in `downsample_s` stays; such a range cannot be "
        "verified any more. 0 for never. Named sessions always stay whole.",
    )
    downsample_s: float = Field(
        default=10.0,
        ge=0.1,
        le=3600,
        description="Seconds of which one tick stays; ticks with a decision stay besides.",
    )
    scrapes_days: int = Field(
        default=30, ge=0, le=3650, description="Days that raw scrapes are kept; 0 for ever."
    )
    history_days: int = Field(
        default=0,
        ge=0,
        le=3650,
        description="Days that decisions, engine switches and ended overrides are kept; 0 for "
        "ever. Policies, markers, benchmarks and the audit always are.",
    )
    wal_alarm_mb: float = Field(
        default=256.0,
        ge=1,
        description="Megabytes of SQLite's write-ahead log above which an alarm is raised: "
        "something keeps it from being brought into the file.",
    )
