"""One meaning for accept length, accept rate and draft counts, whatever an SGLang version says.

Accept length counts tokens per verify step and request, bonus included, and is at least 1.  Accept
rate is accepted drafts over proposed drafts.  A shape's ``num_draft_tokens`` includes the bonus
position, so it proposes one draft less.  Pure.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ValidationError

from controlplane.prometheus_text import MetricsError
from engine_patch.tier import Wire


class RateFormula(StrEnum):
    """What ``spec_accept_rate`` divides (read in the named releases)."""

    UNKNOWN = "unknown"
    """Before 0.5.4: bonus tokens counted against draft steps; exceeds 1."""
    TOKENS_OVER_WIDTH = "tokens_over_width"
    """0.5.4 to 0.5.10: (accepted drafts + bonus) / (proposed drafts + bonus)."""
    DRAFTS_OVER_PROPOSED = "drafts_over_proposed"
    """From 0.5.11: accepted drafts / proposed drafts, our own meaning."""


@dataclass(frozen=True, slots=True)
class AcceptRate:
    """An exported accept rate.

    Args:
        raw: as exported.
        value: accepted drafts over proposed drafts, 0 to 1; None where it cannot be told.
        flagged: the exported number is impossible and was not used.
    """

    raw: float
    value: float | None
    formula: RateFormula
    flagged: bool = False


def rate_formula(version: str) -> RateFormula:
    """The formula an SGLang release uses, from its version."""
    match = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", version)
    if match is None:
        return RateFormula.UNKNOWN
    release = tuple(int(part) for part in match.groups())
    if release >= (0, 5, 11):
        return RateFormula.DRAFTS_OVER_PROPOSED
    return RateFormula.TOKENS_OVER_WIDTH if release >= (0, 5, 4) else RateFormula.UNKNOWN


def accept_rate(raw: float, version: str, num_steps: int, num_draft_tokens: int) -> AcceptRate:
    """Bring an exported accept rate to our meaning.

    Args:
        raw: ``spec_accept_rate`` of ``/metrics`` or ``/v1/loads``.
        version: SGLang's version.
        num_steps, num_draft_tokens: the shape it was measured with.
    """
    formula = rate_formula(version)
    if not math.isfinite(raw) or not 0.0 <= raw <= 1.0:
        return AcceptRate(raw, None, formula, flagged=True)
    if num_steps < 1 or num_draft_tokens < 2 or formula is RateFormula.UNKNOWN:
        return AcceptRate(raw, None, formula)
    if formula is RateFormula.DRAFTS_OVER_PROPOSED:
        return AcceptRate(raw, raw, formula)
    if num_draft_tokens != num_steps + 1:
        # Releases differ in whether a tree's width is its steps or its nodes.
        return AcceptRate(raw, None, formula)
    drafts = (raw * num_draft_tokens - 1.0) / (num_draft_tokens - 1)
    return AcceptRate(raw, max(0.0, drafts), formula)


def accept_length(correct_drafts: int, verify_calls: int) -> float | None:
    """Accept length from a count of accepted drafts, which has no bonus token in it."""
    return 1.0 + correct_drafts / verify_calls if verify_calls > 0 else None


def accept_length_of_tokens(tokens: int, verify_calls: int) -> float | None:
    """Accept length from a count of emitted tokens, which has the bonus tokens in it."""
    return tokens / verify_calls if verify_calls > 0 else None


class RequestAcceptance(Wire):
    """What ``meta_info`` of a finished ``/generate`` tells about one request's whole life.

    Never a control signal: it mixes all tiers the request has seen.
    """

    spec_verify_ct: int = 0
    spec_num_correct_drafts: int | None = None
    spec_num_proposed_drafts: int | None = None
    completion_tokens: int | None = None

    @property
    def length(self) -> float | None:
        """Accept length, bonus included; None without a verify step."""
        if self.spec_num_correct_drafts is None:
            return None
        return accept_length(self.spec_num_correct_drafts, self.spec_verify_ct)

    @property
    def rate(self) -> float | None:
        """Accepted over proposed drafts; None if nothing was proposed."""
        if self.spec_num_correct_drafts is None or not self.spec_num_proposed_drafts:
            return None
        return self.spec_num_correct_drafts / self.spec_num_proposed_drafts


def read_request(text: str | bytes) -> RequestAcceptance:
    """Read the ``meta_info`` object of a ``/generate`` answer.

    Raises:
        MetricsError: the text is no such object.
    """
    try:
        return RequestAcceptance.model_validate_json(text)
    except ValidationError as error:
        raise MetricsError(f"meta_info cannot be read: {error.error_count()} faults") from error
