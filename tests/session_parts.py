"""Recordings for tests: what a script of observations leaves in a session file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.controller import ControllerConfig, answered, initial
from controlplane.sessions_inputs import Intake
from store.records import CommandOutcome, ControlInput, OutcomeKind, Override, Tick
from store.session_reader import SessionFile
from store.session_writer import SessionWriter
from tests.controlplane_script import ENGINE, Script

META = {"engine_id": ENGINE, "name": "test"}


@dataclass
class Recorded(Script):
    """A script whose controller is noted as the live one's is."""

    intake: Intake = field(default_factory=lambda: Intake(ENGINE))
    inputs: list[ControlInput] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.intake.started()
        self.intake.configured(self.config)

    def feed(self, observation: Any) -> Tick:
        tick = super().feed(observation)
        self.intake.stepped(observation.seq, observation.at_utc_ms, self.state)
        self.inputs += self.intake.take()
        return tick

    def use(self, new: ControllerConfig) -> None:
        super().use(new)
        self.intake.configured(new)

    def person(self, asked: Override | None) -> None:
        super().person(asked)
        self.intake.overridden(asked, self.utc_ms, self.mono_ms, self.clock_id)

    def outcome(self, outcome: CommandOutcome) -> None:
        """An answer of the engine reaches the controller."""
        self.state, _ = answered(self.config, self.state, outcome)
        self.intake.answered(outcome)

    def answer_with(self, kind: OutcomeKind) -> None:
        """The engine answers the last command so."""
        command = self.commands[-1]
        self.outcome(
            CommandOutcome(
                kind=kind,
                epoch=command.epoch,
                generation=command.generation,
                at_utc_ms=self.utc_ms,
                at_mono_ms=self.mono_ms,
                latency_ms=2.0,
                code="invalid" if kind is OutcomeKind.REFUSED else "",
                message="no",
            )
        )

    def new_process(self, asked: Override | None = None) -> None:
        """The control plane restarts: the controller's state is gone, an override is read back."""
        self.state = initial(self.config)
        self.clock_id += "+"
        self.mono_ms = 50
        self.intake = Intake(ENGINE)
        self.intake.resume(self.seq, self.utc_ms)
        self.intake.started()
        self.intake.configured(self.config)
        if asked is not None:
            self.person(asked)

    def write(self, path: Path) -> Path:
        """Everything so far as a session file."""
        with SessionWriter.create(path, META) as writer:
            for given in [*self.inputs, *self.intake.take()]:
                writer.add_input(given)
            for tick in self.ticks:
                writer.add_tick(tick)
                for decision in tick.decisions:
                    writer.add_record(decision)
            writer.add_record(self.config.policy)
        return path

    def session(self, path: Path) -> SessionFile:
        """The same, opened."""
        return SessionFile.open(self.write(path))


def paths(folder: Path) -> Iterator[Path]:
    """New names in a folder."""
    number = 0
    while True:
        number += 1
        yield folder / f"session-{number}.specdeck"
