"""``python -m engine_patch.embedded``: serve, or do fixed work on virtual time (``work``).

Exit codes: 0 done, 2 wrong arguments, 5 cannot start (a port is taken, a file cannot be read),
7 an extra is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from engine_patch.contract_words import OffKind
from engine_patch.embedded.acceptance import AcceptMode
from engine_patch.embedded.core import Engine, EngineConfig
from engine_patch.embedded.table import NAMES, load
from engine_patch.tier import OFF, TierShape

OK, USAGE, CANNOT_START, MISSING_EXTRA = 0, 2, 5, 7


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["work"]:
        return _work(words[1:])
    return _serve(words)


def _engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", choices=sorted(NAMES), default="fa3", help="measured times")
    parser.add_argument("--tiers", default="off,s1k1d2,s3k1d4", help="built tiers, comma-separated")
    parser.add_argument("--launch-tier", help="tier before any command (default: the last one)")
    parser.add_argument(
        "--off-kind",
        choices=[kind.value for kind in OffKind],
        default=OffKind.PLAIN_PATH.value,
        help="how tier off runs",
    )
    parser.add_argument(
        "--accept", type=float, default=2.0, help="mean accept length of the chain of three"
    )
    parser.add_argument(
        "--accept-mode", choices=[mode.value for mode in AcceptMode], default="sampled"
    )
    parser.add_argument("--max-running-requests", type=int, default=256)
    parser.add_argument("--kv-slots", type=int, default=861_668)
    parser.add_argument(
        "--reserve-stays",
        action="store_true",
        help="keep the KV reserve of the widest tier while off, as an unpatched SGLang does",
    )
    parser.add_argument("--seed", type=int, default=1)


def _config(said: argparse.Namespace) -> EngineConfig:
    """Raises ValueError with what to do."""
    tiers = tuple(TierShape.parse(name.strip()).name for name in said.tiers.split(","))
    launch = said.launch_tier or tiers[-1]
    if launch not in tiers:
        raise ValueError(f"--launch-tier {launch} is not among --tiers {','.join(tiers)}")
    if len(set(tiers)) != len(tiers):
        raise ValueError("--tiers names a tier twice")
    return EngineConfig(
        table=load(said.table),
        tiers=tiers,
        launch_tier=launch,
        off_kind=OffKind(said.off_kind),
        accept_length=said.accept,
        accept_mode=AcceptMode(said.accept_mode),
        max_running_requests=said.max_running_requests,
        kv_slots=said.kv_slots,
        reserve_follows=not said.reserve_stays,
    )


def _serve(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m engine_patch.embedded",
        description="An SGLang-compatible engine with simulated times.",
        epilog="'work' as first word does fixed work on virtual time: work --help",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000, help="0 takes a free one")
    parser.add_argument("--fault-port", type=int, help="opens the fault port on loopback")
    parser.add_argument("--tp", type=int, default=1, help="TP ranks per replica")
    parser.add_argument("--dp", type=int, default=1, help="DP replicas")
    parser.add_argument("--admin-key-file", type=Path, help="file with the key that PUT needs")
    _engine_options(parser)
    said = parser.parse_args(words)
    if said.tp < 1 or said.dp < 1:
        parser.error("--tp and --dp are at least 1")
    try:
        config = _config(said)
        Engine(config)
    except ValueError as error:
        parser.error(str(error))
    try:
        key = None if said.admin_key_file is None else said.admin_key_file.read_text().strip()
    except OSError as error:
        return _cannot(f"cannot read the admin key file: {error}")
    if key == "":
        return _cannot(
            "the admin key file is empty: write the key into it, or leave the option out"
        )
    try:
        from engine_patch.embedded.server import Ports, PortTakenError, serve
        from engine_patch.embedded.state import Options
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"the embedded engine needs {error.name!r}; run: pip install 'specdeck[controlplane]'\n"
        )
        return MISSING_EXTRA
    options = Options(config=config, seed=said.seed, tp=said.tp, dp=said.dp, admin_key=key)
    try:
        asyncio.run(serve(options, Ports(said.host, said.port, said.fault_port)))
    except PortTakenError as error:
        return _cannot(str(error))
    return OK


def _work(words: Sequence[str]) -> int:
    from engine_patch.embedded.work import read_phases, run_phases

    parser = argparse.ArgumentParser(
        prog="python -m engine_patch.embedded work",
        description="Do fixed work on virtual time and print one JSON object.",
    )
    parser.add_argument(
        "--mode", choices=("on", "off", "plain"), required=True, help="on: the launch tier"
    )
    parser.add_argument("--phases", type=Path, required=True, help="phases file (JSON)")
    parser.add_argument(
        "--turnaround-ms", type=float, default=0.0, help="from an answer to the next request"
    )
    _engine_options(parser)
    said = parser.parse_args(words)
    try:
        config = _config(said)
        if said.mode == "plain":
            config = EngineConfig.plain_server(
                config.table, max_running_requests=config.max_running_requests
            )
        else:
            launch = OFF if said.mode == "off" else config.launch_tier
            if said.mode == "on" and launch == OFF:
                raise ValueError("--mode on needs a speculating --launch-tier")
            config = replace(config, launch_tier=launch, tiers=tuple({*config.tiers, launch}))
        engine = Engine(config, said.seed)
        phases = read_phases(said.phases)
    except OSError as error:
        return _cannot(f"cannot read the phases file: {error}")
    except ValidationError as error:
        parser.error(f"{said.phases} is no phases file: {error.errors()[0]['msg']}")
    except ValueError as error:
        parser.error(str(error))
    done = run_phases(engine, phases, turnaround_ms=said.turnaround_ms)
    tokens, seconds = sum(phase.tokens for phase in done), sum(phase.seconds for phase in done)
    answer = {
        "simulated": True,
        "table": config.table.name,
        "mode": said.mode,
        "tier": config.launch_tier,
        "seed": said.seed,
        "phases": [phase.model_dump() for phase in done],
        "overall": {
            "tokens": tokens,
            "seconds": round(seconds, 6),
            "tok_s": round(tokens / seconds, 3),
        },
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    return OK


def _cannot(message: str) -> int:
    sys.stderr.write(f"specdeck embedded engine: {message}\n")
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
