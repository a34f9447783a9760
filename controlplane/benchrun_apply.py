"""From a benchmark's proposal to the policy that runs: the request, and how it is shown.  Pure."""

from __future__ import annotations

from controlplane.bench_propose import Proposal
from controlplane.messages import PolicyRequest
from store.policies import HysteresisPolicy, PolicyConfig, Stance


def policy_request(
    proposal: Proposal,
    present: PolicyConfig | None,
    *,
    benchmark: str,
    stance: Stance,
    author: str,
) -> PolicyRequest:
    """The request that applies a proposal.

    Holds, dwell and guards of a present policy of the same kind stay: a benchmark measures speed,
    not how patient automation should be.
    """
    policy = proposal.policy
    if present is not None and isinstance(present.policy, HysteresisPolicy):
        policy = HysteresisPolicy.model_validate(
            present.policy.model_dump()
            | {
                "tiers": policy.tiers,
                "boundaries": policy.boundaries,
                "min_accept_length": policy.min_accept_length,
            }
        )
    return PolicyRequest(
        policy=policy,
        stance=stance,
        author=f"bench {author}",
        reason=f"benchmark {benchmark}: {proposal.gain}"[:500],
        if_version=None if present is None else present.version,
    )


def thresholds_words(policy: HysteresisPolicy) -> str:
    """``s3k1d4, from 24 running requests s1k1d2 (back at 16), from 40 off (back at 32)``."""
    parts = [policy.tiers[0]]
    for boundary, busier in zip(policy.boundaries, policy.tiers[1:], strict=True):
        unit = " running requests" if len(parts) == 1 else ""
        parts.append(f"from {boundary.up_at}{unit} {busier} (back at {boundary.down_at})")
    return ", ".join(parts)


def proposal_lines(proposal: Proposal, present: PolicyConfig | None) -> list[str]:
    """The proposal for a person who has to decide."""
    now = "-"
    if present is not None:
        now = f"version {present.version} by {present.author}, {present.stance.value}"
        if isinstance(present.policy, HysteresisPolicy):
            now += f": {thresholds_words(present.policy)}"
    lines = [
        f"now       {now}",
        f"proposed  {thresholds_words(proposal.policy)}",
        f"gain      {proposal.gain}",
    ]
    lines += [
        f"          at {one.concurrency:>4} requests: {one.tier}, {one.tok_s:.0f} tok/s, "
        f"{100 * one.share_of_best:.1f} % of the best ({one.best_tier})"
        for one in proposal.predicted
    ]
    return lines + [f"note      {note}" for note in proposal.notes]
