"""What was found out about a server, and how a person is told.  Pure."""

from __future__ import annotations

from enum import StrEnum

from engine_patch.tier import Wire


class Level(StrEnum):
    """How much a finding matters."""

    GOOD = "good"
    NOTE = "note"
    WRONG = "wrong"


class Finding(Wire):
    """One thing about the server.

    Args:
        do: what to do about it, "" if nothing.
    """

    level: Level
    text: str
    do: str = ""


class Fact(Wire):
    """One labelled fact; ``value`` None where the server does not tell."""

    name: str
    value: str | None


class Diagnosis(Wire):
    """Everything found out about one server.

    Args:
        state: "patched", "unpatched", "refused", "protocol", or "unreachable", "unauthorised",
            "control plane", "no engine" when there is nothing to examine.
        summary: the whole in one sentence.
    """

    url: str
    state: str
    summary: str
    simulated: bool = False
    setup_key: str = ""
    facts: tuple[Fact, ...] = ()
    tiers: tuple[Fact, ...] = ()
    abilities: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether it can be steered and nothing is wrong."""
        return self.state == "patched" and all(
            finding.level is not Level.WRONG for finding in self.findings
        )


def text(diagnosis: Diagnosis) -> str:
    """The diagnosis for a person."""
    lines = [diagnosis.url, diagnosis.summary]
    if diagnosis.facts:
        width = max(len(fact.name) for fact in diagnosis.facts)
        lines.append("")
        lines += [f"  {fact.name:<{width}}  {fact.value or '-'}" for fact in diagnosis.facts]
    if diagnosis.tiers:
        lines += ["", "tiers"]
        lines += [f"  {fact.name:<10} {fact.value or '-'}" for fact in diagnosis.tiers]
    if diagnosis.abilities:
        lines += ["", "what can be done"]
        lines += [
            f"  {'+' if one.level is Level.GOOD else '-'} {one.text}" for one in diagnosis.abilities
        ]
    if diagnosis.findings:
        lines += ["", "what to know"]
        for finding in diagnosis.findings:
            lines.append(f"  {'!' if finding.level is Level.WRONG else '-'} {finding.text}")
            if finding.do:
                lines.append(f"      {finding.do}")
    return "".join(f"{_plain(one)}\n" for one in lines)


def _plain(line: str) -> str:
    """``line`` with nothing in it that a terminal would act on: servers wrote parts of it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
