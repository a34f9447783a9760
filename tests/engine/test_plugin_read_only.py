"""Servers on which nothing can be switched: the plugin observes, and says which flag is missing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine_patch.contract_words import Mode
from tests.engine.conftest import Plain
from tests.engine.cpu_engine import HERE, engine_python

pytestmark = [pytest.mark.engine, pytest.mark.timeout(480)]


def test_a_plain_server_is_observed(plain: Plain) -> None:
    state = plain.state
    (replica,) = state.replicas
    assert [(rank.observed, rank.tier) for rank in replica.ranks] == [(True, None)]
    assert state.tiers == ()
    assert state.mode is Mode.OFF
    assert state.identity.algorithm is None
    assert replica.decode_steps > 0
    # 16 answers of 96 tokens, each with one token from its prefill.
    assert replica.decode_tokens == 16 * 95
    assert replica.verify_steps == 0
    assert replica.accept is None
    assert replica.kv.reserve == 0


def test_a_plain_server_refuses_commands_and_names_the_flags(plain: Plain) -> None:
    assert plain.refused.status_code == 422
    body = plain.refused.json()
    assert body["code"] == "unsupported"
    for flag in ("--speculative-algorithm", "--speculative-adaptive"):
        assert flag in body["message"]
    switching = next(c for c in plain.state.capabilities if c.name == "switching")
    assert not switching.available
    assert switching.reason == body["message"]


_RESOLVE = """
import json, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args
from sglang.srt.arg_groups.overrides import max_speculative_num_draft_tokens, resolving_view
from engine_patch import adapter_launch

for words in json.loads(sys.argv[1]):
    args = prepare_server_args(words)
    args.resolve_once()
    asked, cfg = adapter_launch.asked(), resolving_view(args)
    print("@" + json.dumps({
        "adaptive": cfg.speculative_adaptive,
        "asked": asked.adaptive,
        "reason": asked.turned_off,
        "steps": cfg.speculative_num_steps,
        "most": max_speculative_num_draft_tokens(args),
        "cap": asked.max_running_requests,
        "resolved_cap": cfg.max_running_requests,
    }))
"""


def _resolve(work: Path, *cases: list[str], tiers: str | None = None) -> list[dict[str, Any]]:
    """Resolve server arguments in SGLang with the plugin loaded, without starting a server."""
    base = [
        "--model-path", f"{work}/model/target", "--device", "cpu", "--disable-cuda-graph",
        "--speculative-algorithm", "EAGLE3",
        "--speculative-draft-model-path", f"{work}/model/eagle3",
    ]  # fmt: skip
    env = os.environ | {
        "SGLANG_USE_CPU_ENGINE": "1",
        "PYTHONPATH": str(HERE / "stubs"),
        "HF_HUB_OFFLINE": "1",
    }
    env.pop("SPECDECK_TIERS", None)
    if tiers is not None:
        env["SPECDECK_TIERS"] = tiers
    words = json.dumps([[*base, *case] for case in cases])
    done = subprocess.run(
        [engine_python(), "-W", "ignore", "-c", _RESOLVE, words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]


STEPS = ["--speculative-num-steps", "3"]
CHAIN = [*STEPS, "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
TREE = [*STEPS, "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8"]


def test_sglangs_silent_fallbacks_are_told_with_its_own_reason(work: Path) -> None:
    # In a process of its own: what one start resolved stays with its process.
    (tree,) = _resolve(work, ["--speculative-adaptive", *TREE])
    layers, attention, standalone, trees, chain, static = _resolve(
        work,
        ["--speculative-adaptive", *CHAIN, "--enable-multi-layer-eagle"],
        ["--speculative-adaptive", *CHAIN, "--enable-dp-attention", "--tp", "2", "--dp", "2"],
        ["--speculative-adaptive", *CHAIN, "--speculative-algorithm", "STANDALONE"],
        ["--speculative-adaptive", *TREE, "--speculative-algorithm", "STANDALONE"],
        ["--speculative-adaptive", *CHAIN],
        CHAIN,
    )
    # A tree is no reason any more: the plugin switches tiers of any topk.
    assert (tree["asked"], tree["adaptive"]) == (True, True)
    for refused, words in (
        (layers, "enable_multi_layer_eagle"),
        (attention, "attention DP"),
        (trees, "a standalone drafter switches chains and off"),
    ):
        assert (refused["asked"], refused["adaptive"]) == (True, False)
        assert words in refused["reason"]
    # SGLang leaves a standalone drafter's controller out; ours is put in.
    assert (standalone["asked"], standalone["adaptive"]) == (True, True)
    assert (chain["asked"], chain["adaptive"], chain["reason"]) == (True, True, "")
    assert (static["asked"], static["adaptive"], static["reason"]) == (False, False, "")
    # The cap SGLang puts in is told apart from one that was asked for.
    assert (chain["cap"], chain["resolved_cap"]) == (None, 48)


def test_buffers_are_sized_for_the_widest_tier_of_the_list(work: Path) -> None:
    given, wide = _resolve(
        work,
        ["--speculative-adaptive", *CHAIN, "--max-running-requests", "20"],
        ["--speculative-adaptive", "--speculative-eagle-topk", "1"],
        tiers="off,s1k1d2,s5k1d6",
    )
    # The launch tier is added to the list; without one SGLang takes the middle of it.
    assert (given["steps"], given["most"], given["cap"]) == (3, 6, 20)
    assert (wide["steps"], wide["most"]) == (1, 6)


def test_without_a_list_the_configuration_of_sglang_gives_the_tiers(
    work: Path, tmp_path: Path
) -> None:
    config = tmp_path / "adaptive.json"
    config.write_text(json.dumps({"1": {"candidate_steps": [2, 7]}, "8": {"candidate_steps": [0]}}))
    configured, default = _resolve(
        work,
        ["--speculative-adaptive", "--speculative-adaptive-config", str(config), *CHAIN],
        ["--speculative-adaptive", *CHAIN],
    )
    assert configured["most"] == 8
    assert default["most"] == 4
