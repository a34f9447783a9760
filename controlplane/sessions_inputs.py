"""What a controller takes in beside observations: noted live, read by a replay.  Pure.

A controller's step rests on its configuration, its state and the observation.  The state changes
by observations, by what people do with overrides and by the engine's answers to commands.  Kept in
their order, these are everything that is needed to come to the same verdicts again.  A checkpoint
holds the whole state, so that a replay can begin in the middle and go on after a hole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import Field, TypeAdapter

from controlplane.basis import ControllerConfig, make_basis
from controlplane.ticks import ControllerState
from engine_patch.tier import Frozen
from store.records import CommandOutcome, ControlInput, InputKind, Override

CHECKPOINT_STEPS = 240
"""Steps between two checkpoints: two minutes at two polls a second."""


class OverrideInput(Frozen):
    """The arguments of ``controller.with_override``."""

    override: Override | None
    at_utc_ms: int
    at_mono_ms: int
    clock_id: str = Field(max_length=200)


class Intake:
    """Notes what one controller takes in until it is stored.

    Args:
        engine_id: the engine it looks after.
    """

    def __init__(self, engine_id: str) -> None:
        self._engine_id = engine_id
        self._after_seq = 0
        self._utc_ms = 0
        self._noted: list[ControlInput] = []
        self._config: ControllerConfig | None = None
        self._steps = 0

    def resume(self, seq: int, utc_ms: int) -> None:
        """The last stored observation was this one."""
        self._after_seq, self._utc_ms = seq, utc_ms

    def started(self) -> None:
        """The controller's state begins anew."""
        self._config = None
        self._note(InputKind.START, "{}")

    def configured(self, config: ControllerConfig) -> None:
        """Every step from here on rests on ``config``."""
        if config != self._config:
            self._config = config
            self._note(InputKind.CONFIG, config.model_dump_json())

    def overridden(
        self, override: Override | None, utc_ms: int, mono_ms: int, clock_id: str
    ) -> None:
        """``controller.with_override`` was called with these arguments."""
        self._utc_ms = utc_ms
        body = OverrideInput(
            override=override, at_utc_ms=utc_ms, at_mono_ms=mono_ms, clock_id=clock_id
        )
        self._note(InputKind.OVERRIDE, body.model_dump_json())

    def answered(self, outcome: CommandOutcome) -> None:
        """``controller.answered`` was called with this."""
        self._utc_ms = outcome.at_utc_ms
        self._note(InputKind.OUTCOME, outcome.model_dump_json(exclude_defaults=True))

    def stepped(self, seq: int, utc_ms: int, state: ControllerState | None) -> None:
        """A step on observation ``seq`` led to ``state`` (None: nothing is known of the engine)."""
        self._after_seq, self._utc_ms = seq, utc_ms
        if state is None:
            return
        self._steps -= 1
        if self._steps <= 0:
            self._steps = CHECKPOINT_STEPS
            self.configured(state.basis.config)
            self._note(InputKind.CHECKPOINT, dump_state(state))

    def checkpoint_soon(self) -> None:
        """The next step is a checkpoint, from where a replay can go on."""
        self._steps = 0

    def lost(self) -> None:
        """What was taken last could not be stored; nothing of it can be told any more."""
        self._config = None
        self.checkpoint_soon()

    def take(self) -> list[ControlInput]:
        """What was noted since the last time, in order."""
        noted, self._noted = self._noted, []
        return noted

    def _note(self, kind: InputKind, body: str) -> None:
        self._noted.append(
            ControlInput(
                engine_id=self._engine_id,
                after_seq=self._after_seq,
                kind=kind,
                at_utc_ms=self._utc_ms,
                body=body,
            )
        )


@cache
def _parts() -> Mapping[str, TypeAdapter[Any]]:
    hints = get_type_hints(ControllerState)
    return {
        part.name: TypeAdapter(hints[part.name])
        for part in fields(ControllerState)
        if part.name != "basis"
    }


def dump_state(state: ControllerState) -> str:
    """The state as JSON, without what follows from the configuration."""
    parts = {
        name: adapter.dump_python(getattr(state, name), mode="json", exclude_defaults=True)
        for name, adapter in _parts().items()
    }
    return json.dumps(parts, separators=(",", ":"))


def load_state(body: str, config: ControllerConfig) -> ControllerState:
    """The state of ``dump_state`` under the configuration in force then.

    Raises:
        ValueError: the text does not describe a state.
    """
    found = json.loads(body)
    parts = {
        name: adapter.validate_python(found[name])
        for name, adapter in _parts().items()
        if name in found
    }
    return ControllerState(basis=make_basis(config), **parts)


def read_config(given: ControlInput) -> ControllerConfig:
    """The configuration of an input of that kind; ValueError if it is damaged."""
    return ControllerConfig.model_validate_json(given.body)


def read_override(given: ControlInput) -> OverrideInput:
    """The override of an input of that kind; ValueError if it is damaged."""
    return OverrideInput.model_validate_json(given.body)


def read_outcome(given: ControlInput) -> CommandOutcome:
    """The answer of an input of that kind; ValueError if it is damaged."""
    return CommandOutcome.model_validate_json(given.body)
