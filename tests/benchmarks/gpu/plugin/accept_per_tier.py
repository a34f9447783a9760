"""Test switch: simulated acceptance per tier, from one per-position model.

SGLang's own switch (``SGLANG_SIMULATE_ACC_LEN``) gives every tier the same length.  With
``ACCEPT_POSITIONS=0.544,0.544,0.544`` draft position i is accepted with that probability if all
before it were, so a chain of n steps yields 1 + p1 + p1 p2 + ... tokens; ``ACCEPT_TREE=s2:2.36``
names the mean of a tree by its steps, since a tree's gain is not a function of the chain's numbers.

``OWED_ROWS`` is another bound of the rows that off rounds may owe the drafter, to compare bounds.
"""

import contextlib
import os


def _means() -> dict[int, float]:
    means: dict[int, float] = {0: 1.0}
    reached, total = 1.0, 1.0
    for steps, p in enumerate(os.environ.get("ACCEPT_POSITIONS", "").split(","), 1):
        reached *= float(p)
        total += reached
        means[steps] = total
    for item in filter(None, os.environ.get("ACCEPT_TREE", "").split(",")):
        steps, _, mean = item.partition(":")
        means[int(steps.removeprefix("s"))] = float(mean)
    return means


def register() -> None:
    """Replace the one mean by the active tier's."""
    if os.environ.get("OWED_ROWS"):
        with contextlib.suppress(ImportError):  # a server without specdeck
            from engine_patch import adapter_owed

            adapter_owed.ROWS = int(os.environ["OWED_ROWS"])
    if not os.environ.get("ACCEPT_POSITIONS"):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    means, carry = _means(), dict[int, float]()

    def sample(original, simulate_acc_len, simulate_acc_method, max_len):  # type: ignore[no-untyped-def]
        mean = means.get(max_len - 1)
        if mean is None:
            return original(simulate_acc_len, simulate_acc_method, max_len)
        # One number serves the whole batch: drawn, the mean of 150 rounds of s1k1d2 lies anywhere
        # from 1.41 to 1.74.  What a round leaves over goes to the next instead.
        whole = int(carry.get(max_len, 0.0) + mean)
        carry[max_len] = carry.get(max_len, 0.0) + mean - whole
        return whole

    HookRegistry.register(
        "sglang.srt.speculative.spec_utils._sample_simulated_acc_len", sample, HookType.AROUND
    )
