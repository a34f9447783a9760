"""Rules of groups and of the whole fleet: they hold for engines that join later, too.

A stop of the fleet would be none if an engine that is discovered the next minute acted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from controlplane.added import keep
from controlplane.clock import SystemClock
from controlplane.errors import ProblemError
from controlplane.messages import GroupPolicyRequest
from controlplane.overrides import check_tiers
from controlplane.policy_choice import FIRST_CONTACT
from store.db import Store
from store.observations import EngineFacts
from store.policies import PolicyConfig, Stance
from store.records import AuditEntry
from store.rules import FleetRule, RuleKind


class FleetRules:
    """The rules in force, stored before they hold."""

    def __init__(self, store: Store, clock: SystemClock) -> None:
        self._store = store
        self._clock = clock
        self._rules = store.fleet_rules(in_force_only=True)
        self._turn = asyncio.Lock()

    def in_force(self) -> tuple[FleetRule, ...]:
        """Oldest first."""
        return tuple(self._rules)

    async def stop(self, group: str, author: str, reason: str) -> None:
        """Automation rests in a group, or everywhere: for engines to come, too.

        Raises:
            ProblemError: it cannot be stored.
        """
        rule = FleetRule(
            kind=RuleKind.STOP,
            group=group,
            author=author,
            reason=reason,
            created_utc_ms=self._now(),
        )
        known = any((one.kind, one.group) == (RuleKind.STOP, group) for one in self._rules)
        if not known:
            await self._put(rule, (), "fleet.stop")

    async def resume(self, group: str, author: str, reason: str) -> None:
        """End the stop of a group; without one, every stop.

        Raises:
            ProblemError: it cannot be stored.
        """
        over = [
            one
            for one in self._rules
            if one.kind is RuleKind.STOP and (not group or one.group == group)
        ]
        if over:
            end = FleetRule(
                kind=RuleKind.STOP, group=group, author=author, reason=reason, created_utc_ms=0
            )
            await self._put(end, over, "fleet.start", new=False)

    async def share(self, group: str, request: GroupPolicyRequest, author: str) -> None:
        """A group has this policy from now on.

        Raises:
            ProblemError: it cannot be stored.
        """
        rule = FleetRule(
            kind=RuleKind.POLICY,
            group=group,
            policy=request.policy,
            stance=request.stance,
            delegate=request.delegate,
            author=author,
            reason=request.reason,
            created_utc_ms=self._now(),
        )
        before = [one for one in self._rules if (one.kind, one.group) == (RuleKind.POLICY, group)]
        await self._put(rule, before, "group.policy")

    async def _put(
        self, rule: FleetRule, over: Sequence[FleetRule], action: str, *, new: bool = True
    ) -> None:
        async with self._turn:
            now = self._now()
            ended = [
                one.model_copy(update={"ended_utc_ms": now, "ended_by": rule.author})
                for one in over
            ]
            entry = AuditEntry(
                at_utc_ms=now,
                actor=rule.author,
                action=action,
                target=rule.group or "every engine",
                detail=rule.reason,
            )
            stored = await keep(self._store, [*([rule] if new else []), *ended, entry])
            gone = {one.id for one in over}
            self._rules = [one for one in self._rules if one.id not in gone]
            if new:
                made = stored[0]
                assert isinstance(made, FleetRule)
                self._rules.append(made)

    def _now(self) -> int:
        return self._clock.utc_ms()


def ruled(
    chosen: PolicyConfig,
    rules: Iterable[FleetRule],
    *,
    group: str,
    facts: EngineFacts,
    stored: bool,
    now_utc_ms: int,
) -> PolicyConfig | None:
    """The version that an engine begins with under the rules; None if ``chosen`` is it.

    The policy of its group counts for an engine that nobody has given one, if it has built the
    tiers.  A stop counts for every engine.

    Args:
        chosen: what it would begin with.
        stored: whether ``chosen`` is stored already, so that a change makes the next version.
    """
    made = chosen
    mine = [one for one in rules if one.group in ("", group)]
    shared = next((one for one in mine if one.kind is RuleKind.POLICY and group), None)
    unasked = chosen.author == FIRST_CONTACT and chosen.version == 1 and not stored
    if shared is not None and shared.policy is not None and unasked:
        made = _shared(made, shared, facts)
    stop = next((one for one in mine if one.kind is RuleKind.STOP), None)
    if stop is not None and made.stance is not Stance.PAUSED:
        made = made.model_copy(
            update={
                "stance": Stance.PAUSED,
                "paused_from": made.stance,
                "author": stop.author,
                "reason": stop.reason,
            }
        )
    if made is chosen:
        return None
    if not stored:
        return made
    return made.model_copy(update={"version": chosen.version + 1, "created_utc_ms": now_utc_ms})


def _shared(first: PolicyConfig, rule: FleetRule, facts: EngineFacts) -> PolicyConfig:
    """The first version with the policy of the group; as it was where its tiers were not built."""
    assert rule.policy is not None
    try:
        check_tiers(first.engine_id, rule.policy, facts)
    except ProblemError:
        return first
    update = {
        "policy": rule.policy,
        "stance": rule.stance or first.stance,
        "delegate": first.delegate if rule.delegate is None else rule.delegate,
        "author": rule.author,
        "reason": f"policy of group {rule.group}: {rule.reason}".rstrip(": "),
    }
    return first.model_copy(update=update)
