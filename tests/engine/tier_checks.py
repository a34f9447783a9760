"""A plugin of the tests' own: watches the KV slots under every draft, and can break our hooks.

A reserve that is too small fails silently: drafts go to whatever slots a request's row still holds.
So every draft and every verify asserts that its slots are reserved.  The slots beyond each
request's length are written to a file by tier, and beside it how long SGLang's record of changed
settings is.  Lengths that the host worked out for itself are compared with the ones it would have
waited for, and no draft may begin with one candidate twice.  The faults show that the suite would
notice; they exist here alone, in no installed file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from tests.engine import own_plugin

NAME = "tier_checks"
SLOTS_VARIABLE = "TIER_CHECKS_SLOTS"
OVERRIDES_VARIABLE = "TIER_CHECKS_OVERRIDES"
FAULT_VARIABLE = "TIER_CHECKS_FAULT"
BROKEN_KEEP_VARIABLE = "TIER_CHECKS_BROKEN_KEEP"
"""Makes the drafter end before its attention when it is tried at start-up."""

Fault = Literal["width", "candidates", "early-return", "reserve", "length"]
FAULTS: tuple[Fault, ...] = ("width", "candidates", "early-return", "reserve", "length")

_PLUGIN = '''
import collections
import contextlib
import json
import os

from engine_patch import adapter_decode, adapter_keep, adapter_relay, adapter_reserve
from engine_patch import adapter_lengths, adapter_tiers
from engine_patch.tier import TierShape
from sglang.srt import runtime_context
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

# A server that is watched for growth must not grow of being watched.
seen = collections.defaultdict(lambda: collections.deque(maxlen=40))
rounds = collections.Counter()


def reserved(batch, needed, tier):
    if batch.forward_mode.is_idle():
        return
    beyond = [
        request.kv.kv_allocated_len - length
        for request, length in zip(batch.reqs, batch.seq_lens.tolist(), strict=True)
    ]
    assert min(beyond) >= needed, f"{tier} needs {needed} slots, {min(beyond)} are reserved"
    seen[tier].append([min(beyond), max(beyond)])
    rounds[tier] += 1
    if rounds[tier] % 10 == 0:
        put("TIER_CHECKS_SLOTS", {name: list(rows) for name, rows in seen.items()})
        record = getattr(runtime_context.get_context(), "_overrides_log", ())
        put("TIER_CHECKS_OVERRIDES", len(record))


def put(variable, value):
    """Write a file that is whole whenever somebody reads it."""
    path = os.environ[variable]
    with open(path + ".new", "w") as file:
        json.dump(value, file)
    os.replace(path + ".new", path)


def active():
    tiers = adapter_tiers.controller()
    return "-" if tiers is None else tiers.active


def draft(original, worker, batch, *args, **kwargs):
    needed = max(worker.speculative_num_steps * worker.topk, worker.speculative_num_draft_tokens)
    reserved(batch, needed, active())
    if not batch.forward_mode.is_idle() and not adapter_tiers.cold_by_environment():
        for row in batch.spec_info.topk_index[:, : worker.topk].tolist():
            assert len(set(row)) == worker.topk, f"{active()} drafts from candidates {row}"
    return original(worker, batch, *args, **kwargs)


filled_up = adapter_relay.filled_up


def found(candidates, wanted):
    """What a round of a tier looked for, of what it hands on."""
    seen[f"{active()}, candidates"].append([candidates.shape[1], wanted])
    return filled_up(candidates, wanted)


def watched(tokens, pool, batch, runner):
    """An off round: one token per request."""
    reserved(batch, 1, active())
    if getattr(batch.spec_info, "specdeck_plain", False):
        seen["off, without verify"].append([0, 0])
    return forward_batch(tokens, pool, batch, runner)


resolve = adapter_lengths.Lengths.resolve


def resolved(lengths, original, future, batch, *args, **kwargs):
    """Lengths on the host are those on the device, whoever found them."""
    def theirs(future, batch, *args, **kwargs):
        if not future.needs_cpu_seq_lens:
            seen["lengths, known"].append([0, 0])
        return original(future, batch, *args, **kwargs)

    result = resolve(lengths, theirs, future, batch, *args, **kwargs)
    if getattr(batch.spec_info, "future_indices", None) is not None:
        right = batch.seq_lens.tolist()
        assert batch.seq_lens_cpu.tolist() == right, f"lengths {batch.seq_lens_cpu}, not {right}"
        assert batch.seq_lens_sum == sum(right), f"{batch.seq_lens_sum} in all, not {sum(right)}"
    return result


def narrow(worker):
    """The active tier's candidates are relayed, not the widest's."""
    return contextlib.nullcontext()


def kept_return(controller, tier):
    """SGLang's early return at an equal step count stays."""
    if tier == controller.active:
        return
    controller.worker.topk = controller.worker._draft_worker.topk = TierShape.parse(tier).topk
    controller.worker.apply_runtime_state(controller.states[tier])
    controller.active = tier


def short(tokens, pool, batch, runner):
    """An off round that does not see its own token."""
    forward, *rest = watched(tokens, pool, batch, runner)
    forward.seq_lens = forward.seq_lens - 1
    return forward, *rest


forward_batch = adapter_decode.forward_batch


def broken(off, draft_worker, rows, given=None):
    """A drafter that keep cannot stop at its attention."""
    raise TypeError("no such forward")


def unpadded(original, pool, layer, loc_info, *args, **kwargs):
    """SGLang's CUDA kernel stores nothing in the slot of padding; its CPU path does."""
    where = pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)
    before = [buffer[0].clone() for buffer in where]
    original(pool, layer, loc_info, *args, **kwargs)
    for buffer, padding in zip(where, before, strict=True):
        buffer[0] = padding


def register():
    path = "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool.set_kv_buffer"
    HookRegistry.register(path, unpadded, HookType.AROUND)
    if os.environ.get("TIER_CHECKS_BROKEN_KEEP"):
        adapter_keep.keep = broken
    adapter_decode.forward_batch = watched
    adapter_relay.filled_up = found
    adapter_lengths.Lengths.resolve = resolved
    fault = os.environ.get("TIER_CHECKS_FAULT")
    if fault == "width":
        adapter_relay.full_width = narrow
    elif fault == "candidates":
        # A tree drafts from what a chain looked for.
        adapter_tiers.TierController.can_draft = lambda controller, tier: True
    elif fault == "early-return":
        adapter_tiers.TierController._activate = kept_return
    elif fault == "reserve":
        # Every tier seems to fit into what was reserved.
        adapter_reserve.length_of = lambda tier: 0
    elif fault == "length":
        adapter_decode.forward_batch = short
    path = "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.draft"
    HookRegistry.register(path, draft, HookType.AROUND)
'''


def install(folder: Path) -> Path:
    """Lay the plugin out as an installed distribution; returns the folder for the search path."""
    return own_plugin.install(folder, NAME, _PLUGIN)


def slots(file: Path) -> dict[str, list[tuple[int, int]]]:
    """Least and most slots beyond a request's length in the newest rounds of each tier."""
    said: dict[str, list[list[int]]] = json.loads(file.read_text())
    return {tier: [(row[0], row[1]) for row in rows] for tier, rows in said.items()}


def overrides(file: Path) -> int:
    """Length of SGLang's record of changed settings."""
    length: int = json.loads(file.read_text())
    return length
