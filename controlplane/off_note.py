"""What is known of an engine's ``off``, compared with a plain server.

Pure.  The one place that knows such ratios; each carries where it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine_patch.contract_words import OffKind
from engine_patch.tier import OFF
from store.observations import EngineFacts


class OffWorth(StrEnum):
    """How tier ``off`` compares with a plain server on this engine."""

    EQUAL = "equal"
    WORSE = "worse"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OffNote:
    """What is known of an engine's ``off``, as a sentence with its source.

    Args:
        worth: equal to plain, worse than plain, or not known.
        word: how texts must call the tier here: "off", or "one-token verify" where it is worse.
    """

    worth: OffWorth
    text: str
    word: str = OFF


# Against a plain server, Llama-3.1-8B shape on one NVIDIA H200, SGLang 0.5.17.  One-token verify:
# output tokens per second, closed loop with 128 prompt and 256 output tokens, 128 to 256 running.
# Ordinary decode with keep: rounds in clean windows, 1 to 128 running, medians of 4 to 15 runs.
_MEASURED_ON = "measured on one NVIDIA H200, SGLang 0.5.17, 128 to 256 running requests"
_ROUNDS_ON = "measured on one NVIDIA H200, SGLang 0.5.17, decode rounds of 1 to 128 requests"
_PLAIN_PATH = {"triton": "0.97 to 1.00", "fa3": "0.98 to 0.99", "flashinfer": "0.98 to 0.99"}
_VERIFY_EQUAL = {"fa3": "0.94 to 1.03"}
_VERIFY_WORSE = {"triton": "0.25 to 0.31"}


def off_kind(facts: EngineFacts) -> OffKind | None:
    """How this engine runs ``off``; None if no such tier was built or the engine does not tell."""
    if facts.off_kind is not None:
        return facts.off_kind
    return next((tier.off_kind for tier in facts.tiers if tier.name == OFF), None)


def off_note(facts: EngineFacts) -> OffNote:
    """Whether ``off`` is as fast as a plain server here.

    A backend that was not measured is unknown, never assumed to be either.
    """
    kind = off_kind(facts)
    backend = (facts.identity.attention_backend if facts.identity else None) or ""
    if kind is None:
        if facts.tiers and all(tier.name != OFF for tier in facts.tiers):
            return OffNote(OffWorth.UNKNOWN, "no tier off was built")
        return OffNote(OffWorth.UNKNOWN, "the engine does not say how its tier off runs")
    where = f"on {backend} attention" if backend else "on an attention backend it does not name"
    if kind is OffKind.PLAIN_PATH:
        ratio = _PLAIN_PATH.get(backend)
        if ratio is None:
            return OffNote(
                OffWorth.UNKNOWN,
                f"off runs ordinary decode {where}; against a plain server: not measured",
            )
        return OffNote(
            OffWorth.EQUAL,
            f"off runs ordinary decode {where}: {ratio} of a plain server's tokens/s "
            f"({_ROUNDS_ON})",
        )
    if backend in _VERIFY_WORSE:
        gpu = facts.identity.gpu if facts.identity else None
        here = "" if gpu is None or "H200" in gpu else f"; this engine runs on {gpu}"
        return OffNote(
            OffWorth.WORSE,
            f"one-token verify {where}: {_VERIFY_WORSE[backend]} of a plain server's tokens/s "
            f"({_MEASURED_ON}{here})",
            word="one-token verify",
        )
    if backend in _VERIFY_EQUAL:
        return OffNote(
            OffWorth.EQUAL,
            f"off is a one-token verify {where}: {_VERIFY_EQUAL[backend]} of a plain server's "
            f"tokens/s, within noise ({_MEASURED_ON})",
        )
    return OffNote(
        OffWorth.UNKNOWN,
        f"off is a one-token verify {where}; against a plain server: not measured",
    )
