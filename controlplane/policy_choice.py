"""Which policy version an engine starts with: what is stored, what the settings say, or a default.

Pure: the caller reads the store and the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.capabilities import default_policy, first_stance
from controlplane.settings import EngineSettings
from engine_patch.costs import StepCost
from store.observations import EngineFacts
from store.policies import RULES, PolicyConfig

SETTINGS = "settings"
"""Author of versions that the settings ask for."""
FIRST_CONTACT = "first contact"
"""Author of the version an engine gets that nobody has configured."""


def choose(
    settings: EngineSettings,
    history: Sequence[PolicyConfig],
    facts: EngineFacts,
    costs: tuple[StepCost, ...],
    now_utc_ms: int,
) -> PolicyConfig:
    """The version to run; its number is above the newest stored one if it is new.

    The settings make a new version when they say something else than the last time; otherwise
    what a person has changed since stays in force.  A version of an older release goes on under
    the present rules, as a new version.

    Args:
        history: stored versions, oldest first.
        costs: the step-cost table of this engine's setup; empty if there is none.
    """
    wanted = _wanted(settings)
    if not history:
        first = PolicyConfig(
            engine_id=settings.id,
            version=1,
            stance=first_stance(facts, costs),
            policy=default_policy(facts, costs),
            author=FIRST_CONTACT,
            reason="default for the engine's tiers",
            created_utc_ms=now_utc_ms,
            rules=RULES,
        )
        said = settings.policy is not None or settings.stance is not None
        author = {"author": SETTINGS, "reason": "from the settings"} if said else {}
        return first.model_copy(update=wanted | author)
    newest = history[-1]
    last = next((one for one in reversed(history) if one.author == SETTINGS), newest)
    changed = {key: value for key, value in wanted.items() if getattr(last, key) != value}
    if newest.rules < RULES:
        changed["rules"] = RULES
    if not changed:
        return newest
    return newest.model_copy(
        update=changed
        | {
            "version": newest.version + 1,
            "author": SETTINGS,
            "reason": f"the settings changed {', '.join(sorted(changed))}",
            "created_utc_ms": now_utc_ms,
        }
    )


def _wanted(settings: EngineSettings) -> dict[str, Any]:
    given: dict[str, Any] = {
        "command_timeout_s": settings.command_timeout_s,
        "retries": settings.retries,
        "lease_s": settings.lease_s,
        "stale_after_s": settings.stale_after_s,
    }
    if settings.policy is not None:
        given["policy"] = settings.policy
    if settings.stance is not None:
        given["stance"] = settings.stance
    return given
