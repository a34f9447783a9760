"""Orders: commands with rising ``(epoch, generation)``, and when one must be sent.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.alarms import Alarms
from controlplane.policy_state import NEVER
from controlplane.target import Target, in_force
from store.observations import Sample
from store.records import Command, Decision

BACK_OFF_MAX_MS = 300_000
"""Longest wait before a command that was not applied is tried again."""
CALM_MS = 60_000
"""How long after a failure's wait the next failure counts as the first one again."""
EXACT_SLACK_MS = 1_000
"""How far an engine's lease may differ from an override's time left before it is set again."""
ASSERT_MAX_MS = 10_000
"""Longest wait before an engine that runs the right tier under another command is told again."""
LEASE_MAX_MS = 7 * 86_400_000
"""The longest lease the contract takes."""

_CALM = Alarms()


@dataclass(frozen=True, slots=True)
class Rules:
    """How commands are repeated, in milliseconds and counts."""

    engine_id: str
    timeout_ms: int
    retries: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision that is not settled.

    Args:
        asked_ms: when it was first sent; latency counts from here.
        sent_ms: when it was last sent.
        resend: the engine asked for another order; send at the next chance.
    """

    decision: Decision
    target: Target
    asked_ms: int
    sent_ms: int
    resend: bool = False


@dataclass(frozen=True, slots=True)
class Obedience:
    """What was asked of the engine and what it made of it.

    Args:
        epoch, generation: the highest order sent or seen in this start of the engine.
        asked: the target last sent; None if nothing was.
        sent_ms, lease_until_ms: when that was, and when its lease ends by our account.
        confirmed, confirmed_ms: the last tier that every observed rank reported, and since when.
        settled_ms: when that last changed while the policy acted.
        obeyed_ms: since when the engine has done what was asked, NEVER while it does not.
        failed, failures, retry_ms: the target that was not applied, how often in a row, and when
            it may be tried again.
        blamed_until_ms: when the last such wait ended or ends; long after it all is forgiven.
        differ_ms: since when TP ranks of one replica have differed.
        unclear_ms: since when no single tier has been reported.
    """

    epoch: int = 0
    generation: int = 0
    asked: Target | None = None
    sent_ms: int = NEVER
    lease_until_ms: int = NEVER
    confirmed: str | None = None
    confirmed_ms: int = NEVER
    settled_ms: int = NEVER
    obeyed_ms: int = NEVER
    pending: Pending | None = None
    failed: Target | None = None
    failures: int = 0
    retry_ms: int = NEVER
    blamed_until_ms: int = NEVER
    differ_ms: int = NEVER
    unclear_ms: int = NEVER
    alarms: Alarms = _CALM

    def waiting_ms(self, target: Target | None, now_ms: int) -> int:
        """How long ``target`` still has to wait after a failure; 0 if it may be sent."""
        if target is None or self.failed is None or not self.failed.asks(target):
            return 0
        return max(self.retry_ms - now_ms, 0)


def needs_order(
    obedience: Obedience, target: Target, sample: Sample, now_ms: int, rules: Rules
) -> bool:
    """Whether an engine that does what is wanted must be told so (again): to hold the claim, to
    renew the lease, or because another command is in force."""
    if target.settled or obedience.waiting_ms(target, now_ms) > 0:
        return False
    if obedience.asked is None or not obedience.asked.asks(target):
        return True
    if target.thresholds not in (None, obedience.asked.thresholds):
        # What the engine would do when it is left alone has changed.
        return True
    waited = now_ms - obedience.sent_ms
    if waited < rules.timeout_ms:
        return False
    if not in_force(target, sample):
        # The tier is right, so there is no haste.
        return waited >= min(target.lease_ms / 4, ASSERT_MAX_MS)
    left = obedience.lease_until_ms - now_ms
    if sample.lease_remaining_s is not None:
        left = round(sample.lease_remaining_s * 1000)
    if left < target.lease_ms / 2:
        return True
    exact = target.exact and target.lease_ms < LEASE_MAX_MS
    return exact and abs(left - target.lease_ms) > EXACT_SLACK_MS


def sent(
    obedience: Obedience, target: Target, sample: Sample, now_ms: int
) -> tuple[Obedience, Command]:
    """A command for ``target`` with the next order, and the state that remembers it."""
    lease = max(min(target.lease_ms, LEASE_MAX_MS), 1)
    epoch, generation = next_order(obedience, sample)
    command = Command(
        mode=target.mode,
        tier=target.tier,
        thresholds=target.thresholds,
        lease_s=lease / 1000,
        epoch=epoch,
        generation=generation,
    )
    remembered = replace(
        obedience,
        epoch=epoch,
        generation=generation,
        asked=target,
        sent_ms=now_ms,
        lease_until_ms=now_ms + lease,
    )
    return remembered, command


def next_order(obedience: Obedience, sample: Sample) -> tuple[int, int]:
    """The order after everything sent or seen in this start of the engine."""
    epoch = max(obedience.epoch, sample.epoch)
    seen = [0]
    if obedience.epoch == epoch:
        seen.append(obedience.generation)
    if sample.epoch == epoch:
        seen.append(sample.generation)
    return epoch, max(seen) + 1


def let_go(
    obedience: Obedience, sample: Sample, now_ms: int, lease_ms: int
) -> tuple[Obedience, Command | None]:
    """The last command once more with a lease so short that the engine goes on by itself."""
    if obedience.asked is None:
        return obedience, None
    return sent(obedience, replace(obedience.asked, lease_ms=lease_ms), sample, now_ms)


def delayed(
    obedience: Obedience, target: Target, now_ms: int, rules: Rules, *, first_at_once: bool
) -> Obedience:
    """``target`` was not applied or did not last: the next try waits, longer each time."""
    failures = 1 if forgiven(obedience, now_ms) else obedience.failures + 1
    doublings = failures - 1 if first_at_once else failures
    wait = 0 if doublings == 0 else min(rules.timeout_ms * 2 ** min(doublings, 20), BACK_OFF_MAX_MS)
    retry = now_ms + wait
    return replace(
        obedience, failed=target, failures=failures, retry_ms=retry, blamed_until_ms=retry
    )


def forgiven(obedience: Obedience, now_ms: int) -> bool:
    """Whether the last failure lies long enough back to count as the first one again."""
    return now_ms - obedience.blamed_until_ms >= CALM_MS
