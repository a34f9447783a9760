"""The OpenAPI description holds: fuzzed requests find no defect and no undeclared status."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from tests.controlplane_rig import EmbeddedEngine, deck, embedded_engine

TOKEN = "operating-token-0001"
EXAMPLES = 25
"""Requests per operation, valid and invalid ones by the description."""

NOT_CHECKED = [
    # Rules between fields (mode off takes no tier) stand in no schema.
    schemathesis.checks.positive_data_acceptance,
    # The token and the engine are put right again, so such a request may be a good one.
    schemathesis.checks.negative_data_rejection,
]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The description of a control plane in a process of its own, with an engine behind it."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    arguments = ["--database", str(folder / "deck.sqlite3")]
    tokens = [{"name": "fuzz", "role": "operate", "token": TOKEN}]
    environment = {**os.environ, "SPECDECK_TOKENS": json.dumps(tokens)}
    with (
        embedded_engine("--tiers", "off,s3k1d4") as engine,
        deck(arguments, environment | engines(engine)) as running,
    ):
        # The event stream never ends, so it has tests of its own.
        described = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
        yield described.exclude(path="/v1/events")
        code, errors, _ = running.end(15)
        assert code == 0
        assert "Traceback" not in errors


def engines(engine: EmbeddedEngine) -> dict[str, str]:
    return {"SPECDECK_ENGINES": json.dumps([{"id": "e1", "url": engine.url, "poll_s": 0.1}])}


def test_no_request_finds_a_defect_or_an_undeclared_answer(schema: Any) -> None:
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 45
    for operation in operations:

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            case=st.one_of(*(operation.as_strategy(generation_mode=m) for m in GenerationMode)),
            real=st.booleans(),
        )
        def answer_as_described(case: schemathesis.Case, real: bool) -> None:
            if real and "engine_id" in case.path_parameters:
                # A made-up id ends in 404 before anything deeper is reached.
                case.path_parameters["engine_id"] = "e1"
            timeout = (case.query or {}).get("timeout")
            if isinstance(timeout, int | float) and 0 < timeout <= 60:
                # Whether a wait ends well is tested elsewhere; here it would only take its time.
                case.query["timeout"] = min(timeout, 0.2)
            case.call_and_validate(
                headers={"Authorization": f"Bearer {TOKEN}"},
                excluded_checks=NOT_CHECKED,
            )

        answer_as_described()
