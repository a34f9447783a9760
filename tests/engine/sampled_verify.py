"""Lets the CPU engine sample while it verifies, where SGLang commits the best token instead.

SGLang samples in a verify step with a CUDA kernel and is greedy on a CPU, whatever temperature a
request asks for.  A plugin of the tests' own brings a slow reference of that kernel
(``tree_speculative_sampling_target_only``): walk down the tree, accept a child while a uniform
number lies below the sum of its probability and its refused siblings', draw the last token from
what is left.  So everything around it, which is what the plugin changes, is exercised: lengths,
positions, relays, temperatures.
"""

from __future__ import annotations

from pathlib import Path

from tests.engine import own_plugin

NAME = "sampled_verify"

_PLUGIN = """
import torch


def softmax(logits, temperatures):
    return torch.softmax(logits.float() / temperatures, dim=-1)


def sample(*, predicts, accept_index, accept_token_num, candidates, retrive_index,
           retrive_next_token, retrive_next_sibling, uniform_samples,
           uniform_samples_for_final_sampling, target_probs, **_):
    tokens, where = candidates.tolist(), retrive_index.tolist()
    child, sibling = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for row in range(len(tokens)):
        node, depth = 0, 0
        accept_index[row, 0] = where[row][0]
        left = target_probs[row, 0].clone()
        while depth + 1 < accept_index.shape[1]:
            coin, below = float(uniform_samples[row, node]), 0.0
            next_node = child[row][node]
            while next_node != -1:
                token = tokens[row][next_node]
                below += float(target_probs[row, node, token])
                if coin <= below:
                    break
                left[token] = 0
                next_node = sibling[row][next_node]
            if next_node == -1:
                break
            predicts[where[row][node]] = tokens[row][next_node]
            node, depth = next_node, depth + 1
            accept_index[row, depth] = where[row][node]
            left = target_probs[row, node].clone()
        accept_token_num[row] = depth
        total = left.cumsum(0)
        drawn = int(torch.searchsorted(total, uniform_samples_for_final_sampling[row] * total[-1]))
        predicts[where[row][node]] = min(drawn, len(left) - 1)


def register():
    import sys

    if "sglang.srt.managers.scheduler" not in sys.modules:
        return
    from sglang.srt.speculative import eagle_utils

    eagle_utils._verify_uses_greedy = lambda *, is_all_greedy, **_: is_all_greedy
    eagle_utils.sampling_softmax = softmax
    eagle_utils.tree_speculative_sampling_target_only = sample
"""


def install(folder: Path) -> Path:
    """Lay the plugin out as an installed distribution; returns the folder for the search path."""
    return own_plugin.install(folder, NAME, _PLUGIN)
