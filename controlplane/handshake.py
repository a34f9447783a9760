"""What an answer to ``GET /speculation`` says about the other side.  Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import ValidationError

from controlplane.polled import EngineError
from engine_patch.contract import PROTOCOL, PROTOCOL_MIN, SpeculationState
from store.observations import GapReason, PluginStatus

READ_KEY = "api_key_file or api_key_env"
"""Settings of the key that reads carry."""
COMMAND_KEY = "admin_key_file or admin_key_env"
"""Settings of the key that commands carry."""
ABSENT = (
    "SGLang answers, but the specdeck plugin is not in it: watching by /v1/loads and /metrics, "
    "without commands. To steer it: pip install 'specdeck[engine]' beside SGLang and restart it"
)


@dataclass(frozen=True, slots=True)
class Shake:
    """The outcome of a handshake.

    Args:
        state: only with ``plugin`` present.
        message: why the plugin cannot be used; "" if it can.
        protocol: what the other side speaks, if it said so.
    """

    plugin: PluginStatus
    state: SpeculationState | None = None
    message: str = ""
    protocol: int | None = None


def read_answer(status: int, body: bytes) -> Shake:
    """Read an answer to ``GET /speculation``.

    Raises:
        EngineError: neither a patched engine nor an SGLang without the plugin answers like this.
    """
    if status == 200:
        return _read_state(body)
    if status == 404:
        return Shake(PluginStatus.ABSENT, message=ABSENT)
    if status in (401, 403):
        raise unauthorised(status)
    told = _object(body)
    if status == 503 and told.get("plugin") == "refused":
        return Shake(PluginStatus.REFUSED, message=f"plugin refused: {said(body)}")
    raise EngineError(
        GapReason.BAD_ANSWER, f"GET /speculation was answered with {status}: {said(body)}"
    )


def unauthorised(status: int) -> EngineError:
    """The engine wants a key for reading, or another one than it was given."""
    return EngineError(
        GapReason.UNAUTHORISED,
        f"the engine answers {status}: it wants its API key (SGLang's --api-key) for reading; "
        f"set {READ_KEY} for this engine",
    )


def said(body: bytes, most: int = 300) -> str:
    """The sentence in an error body: its message, detail or error, else the start of its text."""
    told = _object(body)
    for key in ("message", "detail", "error"):
        text = told.get(key)
        if isinstance(text, str) and text:
            return text[:most]
        if isinstance(text, dict) and isinstance(text.get("message"), str):
            return str(text["message"])[:most]
    text = " ".join(body[: most * 4].decode("utf-8", "replace").split())
    return text[:most] or "(no text)"


def _read_state(body: bytes) -> Shake:
    try:
        state = SpeculationState.model_validate_json(body)
    except ValidationError as error:
        told = _object(body)
        if _differs(told.get("protocol"), told.get("protocol_min")):
            return _mismatch(told.get("protocol"), told.get("protocol_min"))
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise EngineError(
            GapReason.BAD_ANSWER,
            f"GET /speculation answers something that is no state: {where}: {first['msg']}",
        ) from error
    if _differs(state.protocol, state.protocol_min):
        return _mismatch(state.protocol, state.protocol_min)
    return Shake(PluginStatus.PRESENT, state=state, protocol=state.protocol)


def _differs(protocol: object, protocol_min: object) -> bool:
    """Whether two sides have no protocol in common; False if the other side names none."""
    if not isinstance(protocol, int) or isinstance(protocol, bool):
        return False
    lowest = protocol_min if isinstance(protocol_min, int) else protocol
    return protocol < PROTOCOL_MIN or lowest > PROTOCOL


def _mismatch(protocol: object, protocol_min: object) -> Shake:
    theirs = f"{protocol_min} to {protocol}" if protocol_min != protocol else f"{protocol}"
    ours = f"{PROTOCOL_MIN} to {PROTOCOL}" if PROTOCOL_MIN != PROTOCOL else f"{PROTOCOL}"
    newer = isinstance(protocol, int) and protocol > PROTOCOL
    side = "this control plane" if newer else "the plugin beside SGLang"
    return Shake(
        PluginStatus.PROTOCOL,
        message=f"the plugin speaks protocol {theirs}, this control plane {ours}: update {side}",
        protocol=protocol if isinstance(protocol, int) else None,
    )


def _object(body: bytes) -> dict[str, object]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
