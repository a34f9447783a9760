"""Bodies of the REST API under ``/v1``: pure records for the server, the client and the console."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine_patch.contract_words import Mode
from engine_patch.costs import StepCost
from engine_patch.tier import Frozen, TierName, Wire
from store.observations import PluginStatus
from store.policies import Policy, PolicyConfig, Stance, Window
from store.records import Alarm, EngineRecord, Guards, Override, Reason, Tick

API_VERSION = "v1"


class Health(Wire):
    """Answer of ``/healthz`` and ``/readyz``."""

    status: str
    version: str
    detail: str = ""


class About(Wire):
    """Answer of ``GET /v1``: who answers and what the caller may do.

    Args:
        now_utc_ms: the control plane's clock, so that a client can show true ages.
        may_operate: whether the caller's token may change anything.
        alarms: what is wrong beside the engines; an engine's own are in its ticks.
    """

    name: str = "specdeck"
    version: str
    api: str = API_VERSION
    now_utc_ms: int
    holder: str
    may_operate: bool
    override_max_s: float
    alarms: tuple[Alarm, ...] = ()


class EngineStatus(Wire):
    """One engine with its newest tick; ``tick`` is None until the first poll ended.

    Args:
        poll_s: seconds between two polls; 0 of an engine that is looked after no more.
    """

    engine: EngineRecord
    policy: PolicyConfig | None = None
    tick: Tick | None = None
    poll_s: float
    now_utc_ms: int


SourceKind = Literal["file", "router"]


class SourceStatus(Wire):
    """A file or router that names engines.

    Args:
        engines: ids of those that are looked after because of it.
        good_utc_ms: when it was read and followed last; None if it never was.
        skipped: workers that it names and that are not looked after, each with its reason.
        alarm: what is wrong with it; the engines known from it stay meanwhile.
    """

    name: str
    kind: SourceKind
    engines: tuple[str, ...]
    good_utc_ms: int | None
    skipped: tuple[str, ...] = ()
    alarm: Alarm | None = None


class FleetRow(Wire):
    """One engine in few words, for a list of hundreds.

    Args:
        text: the verdict in words, "" before the first tick.
        asked: the tier of a decision that is not settled yet.
        age_s: seconds since the newest fresh sample; None if there never was one.
        gap: why the newest poll failed; "" if it did not.
        tick_id: row id of the newest tick.
    """

    engine_id: str
    name: str = ""
    group: str = ""
    model: str = ""
    plugin: PluginStatus | None = None
    simulated: bool = False
    stance: Stance | None = None
    policy: str = ""
    tiers: tuple[TierName, ...] = ()
    desired: TierName | None = None
    confirmed: TierName | None = None
    tier_age_s: float | None = None
    asked: TierName | None = None
    override_by: str = ""
    override_left_s: float | None = None
    reason: Reason | None = None
    text: str = ""
    concurrency: int | None = None
    queued: int | None = None
    decode_tok_s: float | None = None
    accept_length: float | None = None
    kv_used: float | None = None
    alarms: tuple[Alarm, ...] = ()
    warnings: tuple[str, ...] = ()
    gap: str = ""
    age_s: float | None = None
    poll_s: float
    tick_id: int = 0


class Fleet(Wire):
    """Answer of ``GET /v1/fleet``: every engine in one row, in the order of the settings."""

    now_utc_ms: int
    rows: tuple[FleetRow, ...] = ()


class Costs(Wire):
    """Answer of ``GET /v1/engines/{id}/costs``: the step-cost table that automation reckons with.

    Args:
        setup_key: what it was measured on; "" before the engine was reached.
        source: where the cells come from, for people; "" without a table.
        costs: empty if nothing is measured for this setup.
    """

    setup_key: str = ""
    source: str = ""
    costs: tuple[StepCost, ...] = ()


class OverrideRequest(Frozen):
    """Body of ``PUT /v1/engines/{id}/override``.

    Args:
        length_s: seconds until it expires; mandatory.
        author: who asks; the server may replace it by the token's name.
    """

    mode: Mode
    tier: TierName | None = None
    length_s: float = Field(gt=0)
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(min_length=1, max_length=500)
    guards: Guards = Guards.KEEP

    @model_validator(mode="after")
    def _consistent(self) -> OverrideRequest:
        if self.mode is not Mode.ON and self.tier is not None:
            raise ValueError(f"mode '{self.mode}' takes no tier")
        if self.mode is Mode.ON and self.tier == "off":
            raise ValueError("mode 'on' with tier 'off' contradicts itself: use mode 'off'")
        return self


class ExtendRequest(Frozen):
    """Body of ``POST /v1/engines/{id}/override/extend``: seconds added to the present end."""

    extra_s: float = Field(gt=0)
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


class ReleaseRequest(Frozen):
    """Body of ``DELETE /v1/engines/{id}/override``."""

    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


class StanceRequest(Frozen):
    """Body of ``PUT /v1/engines/{id}/stance``: active, shadow or paused."""

    stance: Stance
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


class PolicyRequest(Frozen):
    """Body of ``PUT /v1/engines/{id}/policy``: what automation shall do from the next tick on.

    Args:
        stance: None keeps the present one.
        delegate: whether the engine applies the thresholds itself; None keeps it as it is.
        windows: times of the week with another stance; None keeps them.
        if_version: the version this was made for; refused if another one is in force meanwhile.
    """

    policy: Policy
    stance: Stance | None = None
    delegate: bool | None = None
    windows: tuple[Window, ...] | None = Field(default=None, max_length=50)
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)
    if_version: int | None = Field(default=None, ge=1)


class RollbackRequest(Frozen):
    """Body of ``POST /v1/engines/{id}/policy/rollback``.

    Args:
        version: the one to be like; None takes the last that had another policy.
    """

    version: int | None = Field(default=None, ge=1)
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=400)


class AddEngineRequest(Frozen):
    """Body of ``POST /v1/engines``: look after one more engine.

    An engine that needs keys belongs into the settings: a request can name no file and no secret.

    Args:
        url: base URL of its HTTP server.
        id: made from the URL's host and port if empty.
        stance, policy: as in the settings; None takes the defaults.
    """

    url: str = Field(min_length=1, max_length=500)
    id: str = Field(default="", max_length=64)
    name: str = Field(default="", max_length=100)
    group: str = Field(default="", max_length=100)
    stance: Stance | None = None
    policy: Policy | None = None
    poll_s: float = Field(default=0.5, ge=0.05, le=60)
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


class RemoveEngineRequest(Frozen):
    """Body of ``DELETE /v1/engines/{id}``: leave an engine alone; what was recorded stays."""

    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


class GroupPolicyRequest(Frozen):
    """Body of ``PUT /v1/groups/{group}/policy``: one policy for every engine of a group."""

    policy: Policy
    stance: Stance | None = None
    delegate: bool | None = None
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


class TakeoverRequest(Frozen):
    """Body of ``POST /v1/engines/{id}/takeover``: take the claim of another control plane.

    Args:
        holder: who holds it now, as the engine reports; it must be repeated as a confirmation.
    """

    holder: str = Field(min_length=1, max_length=200)
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(min_length=1, max_length=500)


class TakeoverAnswer(Wire):
    """The takeover is asked for with the next command; the ticks show when the claim is ours.

    Args:
        confirmed: whether it is; None if that was not waited for.
    """

    engine_id: str
    from_holder: str
    holder: str
    confirmed: bool | None = None


class StopRequest(Frozen):
    """Body of ``POST /v1/pause`` and ``POST /v1/resume``: every engine, or those named.

    Args:
        engines: their ids; empty for all.
        group: only engines of this group.
    """

    engines: tuple[str, ...] = ()
    group: str | None = Field(default=None, max_length=100)
    author: str = Field(min_length=1, max_length=200)
    reason: str = Field(default="", max_length=500)


class StopAnswer(Wire):
    """What became of one engine: its policy version now, or why there is none."""

    engine_id: str
    policy: PolicyConfig | None = None
    problem: str = ""


class OverrideAnswer(Wire):
    """The override now in force, None if there is none.

    Args:
        confirmed: whether every observed rank runs it; None if that was not waited for.
    """

    override: Override | None
    confirmed: bool | None = None


class Problem(Wire):
    """Every error answer (RFC 9457 problem details): ``detail`` says what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str = ""
