"""ETags of what can be changed, and whether an ``If-Match`` names what is there.  Pure."""

from __future__ import annotations

import re

from controlplane.errors import ProblemError
from store.policies import PolicyConfig
from store.records import Override

_TAG = re.compile(r'(W/)?"[^"]*"')


def policy_tag(policy: PolicyConfig | None) -> str:
    """The ETag of the policy version in force, and of there being none yet."""
    return '"policy-none"' if policy is None else f'"policy-{policy.version}"'


def override_tag(override: Override | None) -> str:
    """The ETag of the override in force, and of there being none; an extension changes it."""
    if override is None:
        return '"override-none"'
    return f'"override-{override.id}-{override.expires_utc_ms}"'


def check_match(given: str | None, present: str, who: str) -> None:
    """Refuse a change that was made for something else than what is there now.

    Args:
        given: the ``If-Match``; None and ``*`` mean any.
        present: the ETag now.
        who: whose work it is, for people; "" for nobody's.

    Raises:
        ProblemError: 412, it names another one, or none that can be read.
    """
    if given is None or given.strip() == "*":
        return
    tags = [tag.strip() for tag in given.split(",")]
    if present in tags:
        return
    if not all(_TAG.fullmatch(tag) for tag in tags):
        raise ProblemError(
            412,
            "bad_if_match",
            f"If-Match {given!r} is no ETag: write it with its quotes, like {present}",
        )
    by = f" by {who}" if who else ""
    raise ProblemError(
        412,
        "changed_meanwhile",
        f"{present}{by} is in force, not {given}: look at it and ask again",
    )
