"""The words of the engine contract: each a closed set, read and written as its text."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What steers the engine: its own thresholds, a named tier, or no speculation."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class OffKind(StrEnum):
    """How tier ``off`` runs: as ordinary decode, or upstream's verify of a single token."""

    PLAIN_PATH = "plain_path"
    ONE_TOKEN_VERIFY = "one_token_verify"


class OffFlavour(StrEnum):
    """What the drafter does while off: write its K and V, run a whole draft-extend, or nothing."""

    KEEP = "keep"
    WARM = "warm"
    COLD = "cold"


class OnLeaseEnd(StrEnum):
    """Where the engine goes when a command's lease ends: ``auto`` with the last accepted
    thresholds, the launch tier, or nowhere."""

    AUTO = "auto"
    LAUNCH = "launch"
    HOLD = "hold"


class SwitchReason(StrEnum):
    """Why the engine changed its tier."""

    COMMAND = "command"
    BATCH_UP = "batch_up"
    BATCH_DOWN = "batch_down"
    ACCEPT_FLOOR = "accept_floor"
    LEASE_END = "lease_end"
    KV_SHORT = "kv_short"
    LAUNCH = "launch"


class RefusalCode(StrEnum):
    """Why a command was refused.  Nothing moves on a refusal."""

    STALE_ORDER = "stale_order"
    OTHER_BODY = "other_body"
    FOREIGN_CLAIM = "foreign_claim"
    INVALID = "invalid"
    UNKNOWN_TIER = "unknown_tier"
    NO_THRESHOLDS = "no_thresholds"
    UNSUPPORTED = "unsupported"
    KV_SHORT = "kv_short"
    FORBIDDEN = "forbidden"
    PROTOCOL = "protocol"
    TIMEOUT = "timeout"
    DISAGREE = "disagree"
