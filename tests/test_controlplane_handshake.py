"""What an answer to ``GET /speculation`` says about the other side."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.handshake import Shake, read_answer, said
from controlplane.polled import EngineError
from engine_patch.contract import PROTOCOL
from store.observations import GapReason, PluginStatus
from tests.test_controlplane_patched import state


def body(**changes: object) -> bytes:
    return json.dumps({**json.loads(state().model_dump_json()), **changes}).encode()


def test_a_state_of_our_protocol_is_a_present_plugin() -> None:
    shake = read_answer(200, body())
    assert shake.plugin is PluginStatus.PRESENT
    assert shake.state == state()


def test_a_newer_peers_unknown_fields_are_ignored() -> None:
    assert read_answer(200, body(protocol=PROTOCOL + 1, news=1)).plugin is PluginStatus.PRESENT


def test_a_protocol_we_do_not_speak_names_both_sides() -> None:
    shake = read_answer(200, body(protocol=99, protocol_min=98))
    assert shake.plugin is PluginStatus.PROTOCOL
    assert shake.protocol == 99
    assert "speaks protocol 98 to 99" in shake.message
    assert f"this control plane {PROTOCOL}" in shake.message
    assert "update this control plane" in shake.message


def test_a_protocol_too_old_for_us_names_the_plugin_to_update() -> None:
    shake = read_answer(200, body(protocol=0, protocol_min=0))
    assert shake.plugin is PluginStatus.PROTOCOL
    assert "update the plugin" in shake.message


def test_another_protocol_is_told_even_if_its_state_has_another_shape() -> None:
    shake = read_answer(200, b'{"protocol": 99, "protocol_min": 99, "replicas": "elsewhere"}')
    assert shake == Shake(
        PluginStatus.PROTOCOL,
        message=f"the plugin speaks protocol 99, this control plane {PROTOCOL}: "
        "update this control plane",
        protocol=99,
    )


def test_404_is_an_absent_plugin_with_what_to_do() -> None:
    shake = read_answer(404, b'{"detail":"Not Found"}')
    assert shake.plugin is PluginStatus.ABSENT
    assert "pip install 'specdeck[engine]'" in shake.message


def test_a_plugin_that_refused_is_quoted() -> None:
    shake = read_answer(503, b'{"plugin": "refused", "message": "SGLang 0.6.0 is not known"}')
    assert shake.plugin is PluginStatus.REFUSED
    assert shake.message == "plugin refused: SGLang 0.6.0 is not known"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_the_setting(status: int) -> None:
    with pytest.raises(EngineError, match="api_key_file or api_key_env") as caught:
        read_answer(status, b'{"error":"Unauthorized"}')
    assert caught.value.reason is GapReason.UNAUTHORISED


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (500, b'{"error": {"message": "boom"}}', "500: boom"),
        (503, b"starting", "503: starting"),
        (503, b'{"plugin": "starting"}', "503"),
        (302, b"", "302: (no text)"),
        (200, b"<html>", "no state"),
        (200, b'{"protocol": 1}', "no state: protocol_min"),
        (200, b"[]", "no state"),
    ],
)
def test_anything_else_is_a_bad_answer_in_words(status: int, text: bytes, words: str) -> None:
    with pytest.raises(EngineError) as caught:
        read_answer(status, text)
    assert caught.value.reason is GapReason.BAD_ANSWER
    assert words in caught.value.message


def test_a_long_error_page_is_cut() -> None:
    assert len(said(b"x" * 100_000)) == 300


@given(st.sampled_from([200, 401, 404, 418, 500, 503]), st.binary(max_size=200))
def test_any_answer_is_told_or_refused(status: int, text: bytes) -> None:
    try:
        shake = read_answer(status, text)
    except EngineError:
        return
    assert shake.state is None or shake.plugin is PluginStatus.PRESENT


@given(
    st.dictionaries(
        st.sampled_from(["protocol", "protocol_min", "boot_id", "plugin", "message"]),
        st.none() | st.integers() | st.booleans() | st.text(max_size=5) | st.floats(),
    )
)
def test_any_object_is_told_or_refused(told: dict[str, object]) -> None:
    for status in (200, 503):
        try:
            read_answer(status, json.dumps(told).encode())
        except EngineError:
            continue
