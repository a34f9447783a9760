"""``specdeck bench apply``: show what a benchmark proposes, ask once, make it the policy."""

from __future__ import annotations

from pathlib import Path

import typer

from controlplane.benchrun_apply import policy_request, proposal_lines
from controlplane.terminal import OK, USAGE, ask_control_plane, say, show
from store.policies import Stance


def apply_benchmark(
    engine: str,
    benchmark: str,
    stance: Stance,
    author: str,
    yes: bool,
    url: str,
    token_file: Path | None,
) -> int:
    """Apply a benchmark's thresholds; returns an exit code."""
    proposal = ask_control_plane(
        url, token_file, lambda client: client.benchmark_proposal(engine, benchmark)
    )
    status = ask_control_plane(url, token_file, lambda client: client.engine(engine))
    show("\n".join(proposal_lines(proposal, status.policy)))
    try:
        agreed = yes or typer.confirm(f"Apply it to {engine} as {stance.value}?", err=True)
    except typer.Abort:
        say("nothing was changed, because nobody answered; --yes applies without asking")
        return USAGE
    if not agreed:
        say("nothing was changed")
        return OK
    request = policy_request(
        proposal, status.policy, benchmark=benchmark, stance=stance, author=author
    )
    made = ask_control_plane(url, token_file, lambda client: client.set_policy(engine, request))
    show(f"policy version {made.version} by {made.author}, {made.stance.value}")
    return OK
