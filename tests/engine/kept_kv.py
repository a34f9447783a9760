"""A plugin of the tests' own: compares every row that off rounds kept, when the drafter reads it.

In each off round that keeps, SGLang's whole draft-extend runs first; what it wrote is remembered
and taken out of the pool again.  After every draft and every prefill, the rows of the requests at
hand must be there, whenever specdeck stored them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.engine import own_plugin
from tests.engine.plugin_client import PluginClient

NAME = "kept_kv"
COUNTS_VARIABLE = "KEPT_KV_COUNTS"
UNPAID_VARIABLE = "KEPT_KV_UNPAID"
"""Lets prefills read the drafter's KV before what is owed is stored."""

_PLUGIN = '''
import copy
import inspect
import json
import os
import types

from engine_patch import adapter_keep, adapter_relay, adapter_tiers
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

FOREIGN = 777.0
remembered = {}
counts = {"rounds": 0, "calls": 0, "drafts": 0, "prefills": 0, "gap": 0.0, "strided": 0}
state = {"keeping": False, "pool": None}
keep, owe = adapter_keep.keep, adapter_keep.owe


def buffers(worker):
    state["pool"] = pool = worker.draft_runner.token_to_kv_pool
    layer = adapter_tiers.controller().off.attention().layer_id
    return pool.get_key_buffer(layer), pool.get_value_buffer(layer)


def compared(off, worker, batch, result):
    """What the whole draft-extend writes, taken out again before keep's turn."""
    ours = type(worker)._draft_extend_for_decode
    whole, outcome = copy.copy(batch), copy.copy(result)
    outcome.next_draft_input = copy.copy(result.next_draft_input)
    where = batch.out_cache_loc
    with adapter_relay.full_width(worker):
        inspect.unwrap(ours)(worker, whole, outcome)
    rows = [buffer[where].clone() for buffer in buffers(worker)]
    for buffer in buffers(worker):
        buffer[where] = FOREIGN
    remembered.update(zip(where.tolist(), zip(*rows, strict=True), strict=True))
    counts["rounds"] += 1
    owe(off, worker, batch, result)


def counted(off, worker, rows, *args, **kwargs):
    counts["calls"] += 1
    # Kernels of a GPU refuse what has gaps; those of a CPU take it.
    given = (rows.tokens, rows.positions, rows.slots, rows.hidden_states)
    counts["strided"] += not all(values.is_contiguous() for values in given)
    state["keeping"] = True
    try:
        keep(off, worker, rows, *args, **kwargs)
    finally:
        state["keeping"] = False


def written(original, pool, layer, loc_info, *args, **kwargs):
    """Whoever else writes a row makes it another token's."""
    if pool is state["pool"] and not state["keeping"]:
        loc = getattr(loc_info, "loc", loc_info)
        for slot in loc.tolist():
            remembered.pop(slot, None)
    return original(pool, layer, loc_info, *args, **kwargs)


def check(kind, worker, batch):
    if not remembered or batch.forward_mode.is_idle():
        return
    table = worker.req_to_token_pool.req_to_token
    for place, length in zip(batch.req_pool_indices.tolist(), batch.seq_lens.tolist(), strict=True):
        for slot in table[place, :length].tolist():
            if slot not in remembered:
                continue
            for buffer, right in zip(buffers(worker), remembered.pop(slot), strict=True):
                gap = float((buffer[slot].float() - right.float()).abs().max())
                counts["gap"] = max(counts["gap"], gap)
                assert gap < 1e-3, f"one of the {kind} reads a row that is {gap} off"
            counts[kind] += 1
    with open(os.environ["KEPT_KV_COUNTS"] + ".new", "w") as file:
        json.dump(counts, file)
    os.replace(file.name, os.environ["KEPT_KV_COUNTS"])


def draft(original, worker, batch, *args, **kwargs):
    out = original(worker, batch, *args, **kwargs)
    check("drafts", worker, batch)
    return out


def prefill(original, worker, batch, *args, **kwargs):
    out = original(worker, batch, *args, **kwargs)
    check("prefills", worker, batch)
    return out


def register():
    adapter_keep.owe, adapter_keep.keep = compared, counted
    if os.environ.get("KEPT_KV_UNPAID"):
        adapter_relay.adapter_keep = types.SimpleNamespace(pay=lambda worker: None)
    path = "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool.set_kv_buffer"
    HookRegistry.register(path, written, HookType.AROUND)
    path = "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker."
    HookRegistry.register(path + "draft", draft, HookType.AROUND)
    HookRegistry.register(path + "_draft_extend_for_prefill", prefill, HookType.AROUND)
'''


@dataclass(frozen=True)
class Counts:
    """What was compared.

    Args:
        rounds: off rounds that kept.
        calls: how often keep ran the drafter for them.
        drafts: rows that a draft found right.
        prefills: rows that a prefill found right behind a cached prefix.
        gap: largest difference.
        strided: calls of keep with rows that do not lie one behind the other in memory.
    """

    rounds: int
    calls: int
    drafts: int
    prefills: int
    gap: float
    strided: int


def install(folder: Path) -> Path:
    """Lay the plugin out as an installed distribution; returns the folder for the search path."""
    return own_plugin.install(folder, NAME, _PLUGIN)


def counts(file: Path) -> Counts:
    """The newest counts."""
    return Counts(**json.loads(file.read_text()))


def read_by_prefill(client: PluginClient) -> int:
    """A request answered off, then sent again with its answer; tokens found in the prefix cache."""
    client.command("off", off_flavour="keep")
    client.wait_runs("off")
    _, found = client.continued(list(range(40, 60)), new_tokens=100)
    return found


def read_by_drafts(client: PluginClient, prompts: Sequence[str]) -> None:
    """Under load, some rounds off and then a tier that drafts, several times."""
    with client.load(prompts, clients=6, new_tokens=90):
        client.wait(lambda: client.replica().running > 3, "load", 30)
        for tier in ("s2k4d8", "s3k1d4", "s1k1d2") * 2:
            client.command("off", off_flavour="keep")
            client.wait_runs("off", 30)
            start = client.replica().decode_steps
            client.wait(lambda n=start: client.replica().decode_steps >= n + 12, "12 rounds", 30)  # type: ignore[misc]
            client.command("on", tier=tier)
            client.wait_runs(tier, 30)
