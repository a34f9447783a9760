"""Engines that are not in the settings: what is stored of them, and found again after a start."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

from pydantic import ValidationError

from controlplane.errors import ProblemError
from controlplane.messages import AddEngineRequest
from controlplane.security import EngineKeys
from controlplane.settings import EngineSettings
from controlplane.settings_load import ConfigError
from store.db import Record, Store
from store.errors import StoreError, StoreRefused
from store.records import EngineRecord

log = logging.getLogger("specdeck.service")

NO_KEYS = EngineKeys(admin=None, api=None)
"""What an added engine is asked with: a request can name no secret."""


def engine_settings(request: AddEngineRequest) -> EngineSettings:
    """The settings an added engine gets.

    Raises:
        ProblemError: 422, they are not possible.
    """
    given = request.model_dump(mode="json", exclude={"author", "reason"}, exclude_none=True)
    try:
        return EngineSettings.model_validate(given)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, one['loc']))}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors(include_url=False, include_input=False)
        ]
        raise ProblemError(422, "invalid", "; ".join(lines)) from error


def added_record(
    known: EngineRecord | None, engine: EngineSettings, source: str, now_utc_ms: int
) -> EngineRecord:
    """The engine's record with what is needed to look after it again.

    Args:
        known: what is stored of it from an earlier time.
        source: what names it; "" for a request.
    """
    moved = known is None or known.url != engine.url
    return EngineRecord(
        engine_id=engine.id,
        url=engine.url,
        name=engine.name,
        group=engine.group,
        # Facts are those of the server at that address.
        facts=None if known is None or moved else known.facts,
        added_utc_ms=now_utc_ms if known is None else known.added_utc_ms,
        options=_options(engine),
        source=source,
    )


def _options(engine: EngineSettings) -> str:
    """The settings as stored: what was given, and the policy whole.

    Without its kind, which is a default of each policy, it could not be read again.
    """
    given = engine.model_dump(mode="json", exclude_defaults=True)
    if engine.policy is not None:
        given["policy"] = engine.policy.model_dump(mode="json")
    return json.dumps(given)


def keys_of(engine: EngineSettings) -> EngineKeys:
    """The keys of an engine that a source named; without those that cannot be read."""
    try:
        return EngineKeys.read(engine)
    except ConfigError as error:
        log.error("%s", error)
        return NO_KEYS


def added_engines(
    store: Store, configured: Sequence[EngineSettings]
) -> list[tuple[EngineSettings, EngineRecord]]:
    """Engines that were added and not removed; one that is in the settings meanwhile is not."""
    ids = {engine.id for engine in configured}
    urls = {engine.url for engine in configured}
    found: list[tuple[EngineSettings, EngineRecord]] = []
    for record in store.engines():
        if not record.options or record.removed_utc_ms is not None:
            continue
        try:
            engine = EngineSettings.model_validate_json(record.options)
        except ValidationError:
            log.error(
                "engine %s is not looked after: the settings it was added with cannot be read; "
                "add it again (specdeck fleet add %s)",
                record.engine_id,
                record.url,
            )
            continue
        if engine.id not in ids and engine.url not in urls:
            found.append((engine, record))
    return found


async def keep(store: Store, records: Sequence[Record]) -> list[Record]:
    """Store a change before it takes effect.

    Raises:
        ProblemError: it cannot be stored; nothing was changed.
    """
    try:
        return await asyncio.wrap_future(store.write(records))
    except StoreRefused as error:
        raise ProblemError(409, "changed_meanwhile", str(error)) from error
    except StoreError as error:
        raise ProblemError(
            503, "store_failed", f"nothing was changed, because it cannot be recorded: {error}"
        ) from error
