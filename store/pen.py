"""What the writer thread holds in its hand: it puts any record into the open transaction."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from sqlalchemy import Connection, func
from sqlmodel import select

from store.document_writes import (
    add_note,
    add_row,
    save_audit,
    save_decision,
    save_engine,
    save_override,
    save_policy,
    save_session,
    save_switch,
)
from store.documents import squeeze
from store.errors import StoreRefused
from store.fleet_rules import save_fleet_rule
from store.idempotency import KeptAnswer
from store.kept_answers import save_kept_answer
from store.measurements import BenchmarkPoint, CostTable
from store.observations import Gap
from store.policies import PolicyConfig
from store.records import (
    AuditEntry,
    ControlInput,
    Decision,
    EngineRecord,
    EngineSwitch,
    Marker,
    Override,
    RawScrape,
    SessionRecord,
    Tick,
)
from store.rules import FleetRule
from store.tables import EngineRefRow, InputRow, ScrapeRow, TickRow, TickTemplateRow
from store.tick_codec import pack, text_of

Record = (
    Tick
    | Decision
    | EngineSwitch
    | Override
    | PolicyConfig
    | EngineRecord
    | AuditEntry
    | RawScrape
    | ControlInput
    | Marker
    | SessionRecord
    | BenchmarkPoint
    | CostTable
    | KeptAnswer
    | FleetRule
)

TEMPLATE_TICKS = 256
"""Samples of an engine that share one template."""


@dataclass
class _Template:
    row_id: int
    text: bytes
    uses: int = 0


class Pen:
    """Puts records into the open transaction and remembers engine numbers and templates.

    What it remembers may come from the transaction: ``kept`` must follow each commit and
    ``forget`` each rollback.
    """

    def __init__(self) -> None:
        self._refs: dict[str, int] = {}
        self._last_seq: dict[int, int] = {}
        self._templates: dict[int, _Template] = {}
        self._new_names: set[str] = set()
        self._new_templates: set[int] = set()

    def kept(self) -> None:
        """The transaction was committed."""
        self._new_names.clear()
        self._new_templates.clear()

    def forget(self) -> None:
        """The transaction was rolled back: drop what it made, read the rest again when needed."""
        for name in self._new_names:
            del self._refs[name]
        for ref in self._new_templates:
            del self._templates[ref]
        self._last_seq.clear()
        self.kept()

    def save(self, connection: Connection, given: Record) -> Record:
        """Store one record.

        Returns:
            The record with its row id, if its kind has one.

        Raises:
            StoreRefused: it contradicts what is stored.
            ValueError: it cannot be stored exactly (a number that is not finite).
        """
        match given:
            case Tick():
                return given.model_copy(update={"id": self._tick(connection, given)})
            case RawScrape():
                self._scrape(connection, given)
                return given
            case ControlInput():
                row_id = self._input(connection, given)
            case EngineRecord():
                save_engine(connection, given)
                return given
            case PolicyConfig():
                save_policy(connection, given)
                return given
            case AuditEntry() if not given.id:
                return save_audit(connection, given)
            case Decision():
                row_id = save_decision(connection, given)
            case EngineSwitch():
                row_id = save_switch(connection, given)
            case Override():
                row_id = save_override(connection, given)
            case FleetRule():
                row_id = save_fleet_rule(connection, given)
            case KeptAnswer():
                row_id = save_kept_answer(connection, given)
            case SessionRecord():
                row_id = save_session(connection, given)
            case _:
                row_id = add_note(connection, given)
        return given.model_copy(update={"id": row_id})

    def _ref(self, connection: Connection, engine_id: str) -> int:
        ref = self._refs.get(engine_id)
        if ref is None:
            ref = connection.execute(
                select(EngineRefRow.ref).where(EngineRefRow.engine_id == engine_id)
            ).scalar()
            if ref is None:
                ref = add_row(connection, EngineRefRow, engine_id=engine_id)
                self._new_names.add(engine_id)
            self._refs[engine_id] = ref
        return ref

    def _tick(self, connection: Connection, tick: Tick) -> int:
        text = text_of(tick)
        observation = tick.observation
        ref = self._ref(connection, tick.engine_id)
        last = self._last_seq.get(ref)
        if last is None:
            last = connection.execute(
                select(func.max(TickRow.seq)).where(TickRow.engine_ref == ref)
            ).scalar()
        # Ids then rise with the sequence numbers, so that paging by id is replay order.
        if last is not None and observation.seq <= last:
            raise StoreRefused(
                f"tick {observation.seq} of engine {tick.engine_id!r} does not follow {last}: "
                "each observation is stored once and in order"
            )
        is_gap = isinstance(observation, Gap)
        template = self._template(connection, ref, text, is_gap=is_gap)
        row_id = add_row(
            connection,
            TickRow,
            engine_ref=ref,
            seq=observation.seq,
            at_utc_ms=observation.at_utc_ms,
            is_gap=int(is_gap),
            template_id=template.row_id if template else None,
            body=pack(text, template.text if template else b""),
        )
        self._last_seq[ref] = observation.seq
        return row_id

    def _template(
        self, connection: Connection, ref: int, text: bytes, *, is_gap: bool
    ) -> _Template | None:
        template = self._templates.get(ref)
        if is_gap:  # too little in it to help others
            return template
        if template is None or template.uses >= TEMPLATE_TICKS:
            row_id = add_row(connection, TickTemplateRow, engine_ref=ref, body=zlib.compress(text))
            template = self._templates[ref] = _Template(row_id, text)
            self._new_templates.add(ref)
        template.uses += 1
        return template

    def _scrape(self, connection: Connection, scrape: RawScrape) -> None:
        add_row(
            connection,
            ScrapeRow,
            engine_ref=self._ref(connection, scrape.engine_id),
            seq=scrape.seq,
            at_utc_ms=scrape.at_utc_ms,
            path=scrape.path,
            body=squeeze(scrape.text),
        )

    def _input(self, connection: Connection, given: ControlInput) -> int:
        if given.id:
            raise StoreRefused(f"ControlInput {given.id} is stored already and never changes")
        return add_row(
            connection,
            InputRow,
            engine_ref=self._ref(connection, given.engine_id),
            after_seq=given.after_seq,
            kind=str(given.kind),
            at_utc_ms=given.at_utc_ms,
            body=squeeze(given.body),
        )
