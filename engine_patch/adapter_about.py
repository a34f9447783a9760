"""What the control plane is told about a patched SGLang: identity, what it can do, and why not."""

from __future__ import annotations

from collections.abc import Mapping

from engine_patch import adapter_launch, hooks
from engine_patch.contract import Capability, Identity, Versions
from engine_patch.contract_words import OffFlavour
from engine_patch.front import Front
from engine_patch.published import RankFacts
from engine_patch.tier import OFF

SPECULATIVE_CAP = 48
"""SGLang's cap on running requests with speculation and no flag (0.5.23 ``speculative_hook``)."""


def identity(facts: RankFacts | None, asked: adapter_launch.Asked | None) -> Identity:
    """A rank's identity, with what only the launching process knows."""
    if facts is None:
        return Identity(model="unknown")
    requested = asked.max_running_requests if asked else None
    return facts.identity.model_copy(
        update={
            "requested_max_running_requests": requested,
            "cap_origin": cap_origin(asked, facts.identity),
        }
    )


def cap_origin(asked: adapter_launch.Asked | None, known: Identity) -> str | None:
    """Where the cap on running requests came from."""
    cap = known.max_running_requests
    if asked is None or cap is None:
        return None
    if asked.max_running_requests is not None:
        lowered = cap * known.dp_size < asked.max_running_requests
        return "flag, lowered to fit the KV pool" if lowered else "flag"
    if asked.algorithm is not None and cap <= SPECULATIVE_CAP:
        return f"speculative default {SPECULATIVE_CAP}"
    return "derived by SGLang"


_BUILT_IN = {
    "NGRAM": "SGLang's n-gram worker has one width built in: it holds no runtime states, its "
    "corpus gives every request all draft tokens (asserted), and what it relays has that stride; "
    "for off start a server without --speculative-algorithm",
}
"""Why a drafter that is observed cannot be switched (0.5.23 ``ngram_worker``), by SGLang's name."""


def unsupported(facts: RankFacts | None, asked: adapter_launch.Asked | None) -> str:
    """Why nothing can be switched here and what to do about it, "" if it can."""
    if facts is None:
        return "no rank of this host publishes: see the server's log for 'specdeck'"
    if not facts.unsupported:
        return ""
    if facts.identity.algorithm is None:
        return (
            "this server was started without speculation: start it with --speculative-algorithm, "
            "a draft model and --speculative-adaptive"
        )
    if facts.identity.algorithm in _BUILT_IN:
        return _BUILT_IN[facts.identity.algorithm]
    if asked is not None and asked.adaptive and asked.turned_off:
        return f"SGLang turned --speculative-adaptive off: {asked.turned_off}"
    if asked is not None and not asked.adaptive:
        return (
            "this server runs one fixed shape: start it with --speculative-adaptive "
            "and SPECDECK_TIERS, so that several tiers are built"
        )
    return facts.unsupported


def capabilities(
    facts: RankFacts | None,
    reason: str,
    faults: Mapping[str, str],
    tested: bool,
    versions: Versions,
    *,
    keep_reason: str = "",
) -> tuple[Capability, ...]:
    """What this engine can do, and why not."""
    fault = "; ".join(f"{rank}: {words}" for rank, words in faults.items())
    switching = reason or fault
    left = facts.left_out if facts is not None else adapter_launch.left_out()
    left_out = "; ".join(words for _, words in left)
    names = [tier.name for tier in facts.tiers] if facts else []
    trees = any(tier.topk > 1 for tier in facts.tiers) if facts else False
    plain = facts is not None and OFF in names and not facts.off_reason
    follows = facts is not None and facts.reserve_follows
    return (
        Capability(name="switching", available=not switching, reason=switching),
        Capability(
            name="off",
            available=not switching and OFF in names,
            reason=switching
            or ("" if OFF in names else "tier off was not built: list it in SPECDECK_TIERS"),
        ),
        Capability(
            name="tree_tiers",
            available=trees and not switching,
            reason=switching
            or ("" if trees else left_out or "no tier with topk above 1 was asked for"),
        ),
        Capability(
            name="all_tiers", available=not left_out and not switching, reason=switching or left_out
        ),
        Capability(
            name="plain_off",
            available=plain and not switching,
            reason=switching
            or ("" if plain else f"off runs as SGLang's one-token verify: {_why_not_plain(facts)}"),
        ),
        Capability(
            name="keep_drafter_kv",
            available=OffFlavour.KEEP in (facts.flavours if facts else ()) and not keep_reason,
            reason=keep_reason
            or (
                ""
                if OffFlavour.KEEP in (facts.flavours if facts else ())
                else "this drafter's keys and values cannot be kept while off: off runs warm"
            ),
        ),
        Capability(
            name="reserve_follows_tier",
            available=follows and not switching,
            reason=switching
            or ("" if follows else "SPECDECK_RESERVE=all: slots are held for the widest tier"),
        ),
        Capability(
            name="step_costs",
            available=facts is not None,
            reason="" if facts is not None else "no rank publishes",
        ),
        Capability(
            name="cuda_graphs",
            available=bool(facts and facts.graphs),
            reason="" if facts and facts.graphs else "the server runs without CUDA graphs",
        ),
        Capability(
            name="tested_version",
            available=tested,
            reason=""
            if tested
            else f"untested version: SGLang {versions.engine_version} has every attribute the "
            f"plugin needs, but the plugin was tested on {', '.join(hooks.TESTED)}",
        ),
    )


def _why_not_plain(facts: RankFacts | None) -> str:
    if facts is None:
        return "no rank publishes"
    if OFF not in [tier.name for tier in facts.tiers]:
        return "tier off was not built"
    return facts.off_reason


def at_launch(boot_id: str, facts: RankFacts | None, reason: str) -> Front:
    """The front of an engine nobody has commanded yet."""
    names = tuple(tier.name for tier in facts.tiers) if facts else ()
    launch = facts.launch_tier if facts else None
    limits = {t.name: t.max_batch for t in facts.tiers if t.max_batch} if facts else {}
    return Front.at_launch(
        boot_id,
        names or (OFF,),
        launch or OFF,
        largest_batch=limits,
        flavours=facts.flavours if facts else (),
        unsupported=reason,
    )
