"""The setup key: measured costs are valid for one setup only, and this names it."""

from __future__ import annotations

import hashlib
import json
import re

from store.observations import EngineFacts


def setup_key(facts: EngineFacts) -> str:
    """A stable name of everything a step cost depends on: readable parts, then a digest.

    Written ``engine-version_model_gpuxcount_backend_tpN-dpN_digest``.  The size of the KV pool
    enters with two significant digits, because SGLang sizes it from the memory that happens to be
    free and an unchanged setup must keep its key over a restart.  A simulated engine has keys of
    its own.
    """
    parts, identity = _parts(facts), facts.identity
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return "_".join(
        (
            f"{_slug(parts['engine'])}-{_slug(parts['engine_version'])}",
            _slug(str(parts["model"]).rstrip("/").rsplit("/", 1)[-1] if identity else None),
            f"{_slug(parts['gpu'])}x{identity.gpu_count if identity else '-'}",
            _slug(parts["attention_backend"]),
            f"tp{identity.tp_size}-dp{identity.dp_size}" if identity else "-",
            digest,
        )
    )


def differences(before: EngineFacts, now: EngineFacts) -> list[tuple[str, object, object]]:
    """Parts of the key that are known of both and differ: (name, before, now)."""
    old, new = _parts(before), _parts(now)
    unknown: tuple[object, ...] = (None, [])
    return [
        (name, old[name], new[name])
        for name in old
        if old[name] not in unknown and new[name] not in unknown and old[name] != new[name]
    ]


def _parts(facts: EngineFacts) -> dict[str, object]:
    versions, identity = facts.versions, facts.identity
    return {
        "engine": versions.engine if versions else None,
        "engine_version": versions.engine_version if versions else None,
        "plugin_version": versions.plugin_version if versions else None,
        "flashinfer": versions.flashinfer if versions else None,
        "model": identity.model if identity else None,
        "draft_model": identity.draft_model if identity else None,
        "dtype": identity.dtype if identity else None,
        "gpu": identity.gpu if identity else None,
        "gpu_count": identity.gpu_count if identity else None,
        "tp_size": identity.tp_size if identity else None,
        "dp_size": identity.dp_size if identity else None,
        "attention_backend": identity.attention_backend if identity else None,
        "max_running_requests": identity.max_running_requests if identity else None,
        "kv_capacity": _two_digits(identity.kv_capacity) if identity else None,
        "tiers": sorted(tier.name for tier in facts.tiers),
        "off_kind": facts.off_kind,
        "simulation": facts.simulation_table if facts.simulated else None,
    }


def _two_digits(value: int | None) -> int | None:
    if value is None or value < 100:
        return value
    scale: int = 10 ** (len(str(value)) - 2)
    return round(value / scale) * scale


def _slug(value: object) -> str:
    if value is None or value == "":
        return "-"
    return re.sub(r"[^A-Za-z0-9.]+", "-", str(value)).strip("-") or "-"
