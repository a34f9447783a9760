"""Command lines of recordings: record, replay, what-if, compare, report.

Output goes to stdout, everything else to stderr.  What only some of them need is imported when
they run: ``specdeck replay`` loads no engine client.
"""

from __future__ import annotations

from controlplane.sessions_compare_cli import compare_app, report_app
from controlplane.sessions_record_cli import record_app
from controlplane.sessions_replay_cli import replay_app
from controlplane.sessions_whatif_cli import what_if_app
from controlplane.terminal import run_app


def run_record(argv: list[str]) -> int:
    """``specdeck record``."""
    return run_app(record_app, argv, "specdeck record")


def run_replay(argv: list[str]) -> int:
    """``specdeck replay``."""
    return run_app(replay_app, argv, "specdeck replay")


def run_what_if(argv: list[str]) -> int:
    """``specdeck what-if``."""
    return run_app(what_if_app, argv, "specdeck what-if")


def run_compare(argv: list[str]) -> int:
    """``specdeck compare``."""
    return run_app(compare_app, argv, "specdeck compare")


def run_report(argv: list[str]) -> int:
    """``specdeck report``."""
    return run_app(report_app, argv, "specdeck report")
