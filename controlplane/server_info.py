"""SGLang's ``GET /server_info``: who the server is and how it was started.  Pure.

The answer goes through the scheduler and can take minutes while that is busy, so it is asked once
per start, in the background.  Its top level holds the launch configuration, ``internal_states`` the
present one; lifetime accept lengths and the last throughput in it are never used.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from pydantic import Field, ValidationError

from controlplane.prometheus_text import MetricsError
from engine_patch.contract import Identity
from engine_patch.tier import TierShape, Wire

SPECULATIVE_CAP = 48
"""``max_running_requests`` SGLang sets for speculation when none is asked for
(``arg_groups/speculative_hook.py`` in 0.5.17 and 0.5.23)."""
CAP_FLAG = "--max-running-requests"


class _Memory(Wire):
    token_capacity: int | None = None


class _Internal(Wire):
    effective_max_running_requests_per_dp: int | None = None
    memory_usage: _Memory | None = None


class _ServerInfo(Wire):
    version: str | None = None
    model_path: str
    speculative_draft_model_path: str | None = None
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_adaptive: bool | None = None
    dtype: str | None = None
    tp_size: int = Field(default=1, ge=1)
    pp_size: int = Field(default=1, ge=1)
    dp_size: int = Field(default=1, ge=1)
    enable_dp_attention: bool | None = None
    page_size: int | None = None
    attention_backend: str | None = None
    decode_attention_backend: str | None = None
    max_running_requests: int | None = None
    max_total_num_tokens: int | None = None
    launch_command: str | None = None
    internal_states: tuple[_Internal, ...] = ()


@dataclass(frozen=True, slots=True)
class Cap:
    """The cap on running requests.

    Args:
        requested: asked for at launch; None when unset or not known.
        effective: in force, per DP replica.
        origin: where it came from, in words.
    """

    requested: int | None
    effective: int | None
    origin: str


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What is kept of ``/server_info``.

    Args:
        launch_shape: speculation shape at launch; None on a plain server or an impossible shape.
        adaptive: SGLang switches its steps by itself.
    """

    version: str | None
    identity: Identity
    launch_shape: TierShape | None
    adaptive: bool


def read_server_info(text: str | bytes) -> ServerInfo:
    """Read the answer of ``/server_info`` (0.5.17 and 0.5.23).

    Raises:
        MetricsError: it is no such answer.
    """
    try:
        info = _ServerInfo.model_validate_json(text)
        cap = _cap(info)
        # With DP attention the replicas share the TP group's GPUs.
        separate = 1 if info.enable_dp_attention else info.dp_size
        identity = Identity(
            model=info.model_path,
            draft_model=info.speculative_draft_model_path,
            algorithm=info.speculative_algorithm,
            dtype=info.dtype,
            gpu_count=info.tp_size * info.pp_size * separate,
            tp_size=info.tp_size,
            dp_size=info.dp_size,
            page_size=info.page_size or 1,
            attention_backend=info.decode_attention_backend or info.attention_backend,
            requested_max_running_requests=cap.requested,
            max_running_requests=cap.effective,
            cap_origin=cap.origin,
            kv_capacity=_capacity(info),
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MetricsError(
            f"/server_info cannot be read: {where or 'body'}: {first['msg']}"
        ) from error
    return ServerInfo(
        version=info.version,
        identity=identity,
        launch_shape=_shape(info),
        adaptive=bool(info.speculative_adaptive),
    )


def _cap(info: _ServerInfo) -> Cap:
    """The requested cap is told by the launch command where the server shows it (0.5.23); else the
    resolved value is all there is, and 48 with speculation may be either."""
    in_force = [state.effective_max_running_requests_per_dp for state in info.internal_states]
    known = [value for value in in_force if value is not None]
    effective = min(known) if known else info.max_running_requests
    speculates = info.speculative_algorithm is not None
    if info.launch_command is not None:
        asked = _asked(info.launch_command)
        if asked is not None:
            return Cap(asked, effective, "flag")
        if speculates and info.max_running_requests == SPECULATIVE_CAP:
            return Cap(None, effective, f"speculative default {SPECULATIVE_CAP}")
        return Cap(None, effective, "engine default")
    if info.max_running_requests is None:
        return Cap(None, effective, "engine default")
    if speculates and info.max_running_requests == SPECULATIVE_CAP:
        return Cap(None, effective, f"speculative default {SPECULATIVE_CAP} (or a flag)")
    return Cap(info.max_running_requests, effective, "flag")


def _asked(command: str) -> int | None:
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        # `Engine(max_running_requests=8)` shows up as a call.
        if name.lstrip("(,").replace("_", "-").removeprefix("--").endswith(CAP_FLAG[2:]):
            number = (value if equals else following).rstrip("),")
            if number.isascii() and number.isdigit() and len(number) <= 9:
                return int(number)
    return None


def _capacity(info: _ServerInfo) -> int | None:
    told = [state.memory_usage for state in info.internal_states]
    slots = [memory.token_capacity for memory in told if memory is not None]
    known = [value for value in slots if value is not None]
    return min(known) if known else info.max_total_num_tokens


def _shape(info: _ServerInfo) -> TierShape | None:
    steps, tokens = info.speculative_num_steps, info.speculative_num_draft_tokens
    if info.speculative_algorithm is None or steps is None or tokens is None:
        return None
    try:
        return TierShape(
            num_steps=steps, topk=info.speculative_eagle_topk or 1, num_draft_tokens=tokens
        )
    except ValidationError:
        return None
