"""``specdeck what-if``: recordings under another policy, and the best thresholds of a grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.sessions_terminal import counter, told, write_new
from controlplane.terminal import USAGE, Json, say, show, show_list
from store.errors import StoreError

what_if_app = typer.Typer()


@what_if_app.command()
def what_if(
    files: Annotated[list[Path], typer.Argument(help="Session files.")],
    policy: Annotated[Path | None, typer.Option(help="A policy file, TOML or JSON.")] = None,
    edit: Annotated[
        list[str] | None, typer.Option("--set", help="boundaries.0.up_at=32; may be repeated.")
    ] = None,
    load: Annotated[str, typer.Option(help="recorded or arrivals.")] = "recorded",
    table: Annotated[Path | None, typer.Option(help="A step-cost table, JSON.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="boundaries.0.up_at=16:64:8 or up_hold_s=1,2,4; may be repeated."),
    ] = None,
    hold_out: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the sessions not chosen on.")
    ] = 0.0,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Write the policy as a file.")] = None,
    as_json: Json = False,
) -> None:
    """What would another policy have done? With --grid: which thresholds would have been best?"""
    from controlplane.sessions_text import grid_text, what_if_text
    from controlplane.whatif_answer import answer, config_of, subject_of, with_policy
    from controlplane.whatif_estimate import LoadModel
    from controlplane.whatif_grid import parse_axis, search
    from controlplane.whatif_policy import edited, policy_text, read_policy
    from store.session_reader import SessionFile

    try:
        model = LoadModel(load)
    except ValueError as error:
        say("--load is recorded or arrivals")
        raise typer.Exit(USAGE) from error
    with told():
        costs = None if table is None else _table(table)
        with SessionFile.open(files[0]) as session:
            base = read_policy(policy) if policy is not None else config_of(session).policy.policy
        base = edited(base, edit or [])
        if grid:
            tell = counter("points")
            found = search(
                files,
                base,
                [parse_axis(axis) for axis in grid],
                costs=costs,
                hold_out=hold_out,
                workers=workers,
                progress=lambda done, _: tell(done),
            )
            show(found.model_dump_json() if as_json else grid_text(found))
            chosen, comment = found.best.policy, f"least regret over {', '.join(found.sessions)}"
        else:
            answers = []
            for file in files:
                with SessionFile.open(file) as session:
                    subject = subject_of(session, costs)
                answers.append(answer(subject, with_policy(subject.config, base), model))
            if as_json:
                show_list(answers)
            else:
                for file, one in zip(files, answers, strict=True):
                    show(what_if_text(file.name, one))
            chosen, comment = base, "asked of " + ", ".join(file.name for file in files)
        if out is not None:
            write_new(out, policy_text(chosen, comment))


def _table(path: Path) -> Any:
    from pydantic import TypeAdapter, ValidationError

    from engine_patch.costs import StepCost
    from store.measurements import CostTable

    try:
        body = path.read_bytes()
        whole = json.loads(body)
        if isinstance(whole, dict):
            return CostTable.model_validate(whole).costs
        return TypeAdapter(tuple[StepCost, ...]).validate_python(whole)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, ValidationError) as error:
        raise StoreError(f"{path} is no step-cost table: a CostTable, or its cells") from error
