"""A benchmark for other programs: SGLang, vLLM, TensorRT-LLM, CSV.  Pure.

Formats, as read in:

- SGLang 0.5.23 ``speculative/adaptive_spec_params.py``: an object whose integer-string keys are the
  least batch size of a slot, each with ``candidate_steps``.  One candidate per slot is fixed: the
  controller then follows the batch size alone and does not hunt.
- vLLM ``v1/spec_decode/dynamic/utils.py``: inclusive ranges ``[from, to, draft tokens]``, the first
  from 1, none overlapping; the last goes on above its end.  Draft tokens do not count the bonus.
- TensorRT-LLM ``llmapi/llm_args.py`` ``draft_len_schedule``: batch size to draft length.  Newer
  releases read a key as the largest batch of its length, and no drafts above the last key
  ("upper"); older ones as the least batch, from 1 on ("lower").  The smallest key must carry
  ``max_draft_len``.

None of them can switch to a tree, and none knows a gap between going busier and coming back; each
switches at ``up_at``.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum

from controlplane.bench_csv import COLUMNS, SEPARATOR
from controlplane.bench_propose import Proposal
from controlplane.bench_records import BenchPoint
from engine_patch.tier import OFF, TierShape

_EXTRA = tuple(name for name in BenchPoint.model_fields if name not in COLUMNS and name != "source")


class Target(StrEnum):
    """Whom an export is for."""

    SGLANG = "sglang"
    VLLM = "vllm"
    TRTLLM = "trtllm"
    THRESHOLDS = "thresholds"
    CSV = "csv"


class Keys(StrEnum):
    """How a TensorRT-LLM release reads the keys of ``draft_len_schedule``."""

    UPPER = "upper"
    LOWER = "lower"


class ExportError(ValueError):
    """The thresholds cannot be written in a format; the text says why."""


def steps_by_batch(proposal: Proposal) -> list[tuple[int, int]]:
    """Least batch size and draft steps, rising; the first from batch 1.

    Raises:
        ExportError: a tier is a tree.
    """
    thresholds = proposal.thresholds
    slots: list[tuple[int, int]] = []
    starts = (1, *(boundary.up_at for boundary in thresholds.boundaries))
    for start, tier in zip(starts, thresholds.tiers, strict=True):
        shape = TierShape.parse(tier)
        if shape.topk != 1:
            raise ExportError(f"{tier} is a tree; this format knows chains and off only")
        if slots and slots[-1][0] == start:
            slots.pop()
        slots.append((start, shape.num_steps))
    return slots


def sglang(proposal: Proposal) -> str:
    """``--speculative-adaptive-config``."""
    slots = {str(start): {"candidate_steps": [steps]} for start, steps in steps_by_batch(proposal)}
    return json.dumps(slots, indent=1) + "\n"


def vllm(proposal: Proposal, largest: int) -> str:
    """The two keys of ``--speculative-config`` that carry the schedule.

    Args:
        largest: the largest batch size the last range names.
    """
    slots = steps_by_batch(proposal)
    most = max(steps for _, steps in slots)
    if most == 0:
        raise ExportError("no speculating tier is left; vLLM needs num_speculative_tokens above 0")
    starts = [start for start, _ in slots]
    ends = [start - 1 for start in starts[1:]] + [max(largest, starts[-1])]
    ranges = [[start, end, steps] for (start, steps), end in zip(slots, ends, strict=True)]
    return (
        json.dumps(
            {
                "num_speculative_tokens": most,
                "num_speculative_tokens_per_batch_size": ranges,
            }
        )
        + "\n"
    )


def trtllm(proposal: Proposal, largest: int, keys: Keys = Keys.UPPER) -> str:
    """``max_draft_len`` and ``draft_len_schedule`` of a speculative config.

    Args:
        largest: the largest batch size that still drafts where off is never reached.
    """
    slots = steps_by_batch(proposal)
    most = max(steps for _, steps in slots)
    if most == 0 or slots[0][1] != most:
        raise ExportError(
            "draft_len_schedule must begin with its longest draft, and here the quietest tier is "
            "not the longest"
        )
    schedule: dict[str, int] = {}
    if keys is Keys.LOWER:
        schedule = {str(start): steps for start, steps in slots}
    else:
        starts = [start for start, _ in slots]
        ends = [start - 1 for start in starts[1:]] + [max(largest, starts[-1])]
        schedule = {
            str(end): steps for (_, steps), end in zip(slots, ends, strict=True) if steps > 0
        }
    return json.dumps({"max_draft_len": most, "draft_len_schedule": schedule}) + "\n"


def as_csv(points: Sequence[BenchPoint]) -> str:
    """Every run in the columns that ``analyze`` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    defaults = {name: BenchPoint.model_fields[name].default for name in _EXTRA}
    extra = [name for name in _EXTRA if any(getattr(run, name) != defaults[name] for run in points)]
    writer.writerow((*COLUMNS, *extra))
    for run in points:
        shape = run.shape
        row: list[object] = [run.tier]
        if shape is None:
            row += [0, "", ""]
        else:
            row += [shape.num_steps, shape.topk, shape.num_draft_tokens]
        row += [_cell(getattr(run, name)) for name in (*COLUMNS[4:], *extra)]
        writer.writerow(row)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        return SEPARATOR.join(value)
    return "" if value is None else str(value) if isinstance(value, StrEnum) else value


def thresholds(proposal: Proposal) -> str:
    """The engine's own ``auto`` thresholds, as ``PUT /speculation`` takes them."""
    return proposal.thresholds.model_dump_json(indent=1) + "\n"


def warnings(proposal: Proposal, target: Target) -> tuple[str, ...]:
    """What the reader of an export must know."""
    found = list(proposal.notes)
    if target is Target.SGLANG and OFF in proposal.thresholds.tiers:
        found.append(
            "SGLang's own step 0 is a one-token verify: as fast as a plain server on FA3, a "
            "quarter of it on triton, not measured elsewhere (one H200, SGLang 0.5.17)"
        )
        found.append("SGLang rounds the batch up to its next CUDA graph size before it looks")
    if target is Target.TRTLLM and proposal.thresholds.tiers[-1] != OFF:
        found.append("above the last key TensorRT-LLM drafts nothing (keys: upper)")
    return tuple(found)
