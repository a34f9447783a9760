"""The control plane's own metrics as Prometheus text, made when asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from controlplane.service import Service
from controlplane.version import VERSION
from store.observations import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ENGINE = ("engine",)


class Page(Collector):
    """Collects from the running service.  A value that is not known has no sample, never 0."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing is described ahead: names depend on no state, values do."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One family after another."""
        info = GaugeMetricFamily(
            "specdeck_info", "Version of the control plane", labels=["version"]
        )
        info.add_metric([VERSION], 1.0)
        yield info
        hub = self._service.hub
        yield GaugeMetricFamily("specdeck_sse_clients", "Open event streams", value=hub.clients)
        yield CounterMetricFamily(
            "specdeck_sse_dropped", "Event streams ended for slow reading", value=hub.dropped
        )
        yield GaugeMetricFamily(
            "specdeck_ready",
            "1 if the store can be written and every loop is alive",
            value=0.0 if self._service.troubles() else 1.0,
        )
        yield from self._sources()
        yield from self._store()
        yield from self._engines()
        yield from self._loops()

    def _sources(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily(
            "specdeck_source_up",
            "1 if a file or router that names engines can be followed",
            labels=["source"],
        )
        engines = GaugeMetricFamily(
            "specdeck_source_engines", "Engines looked after because of it", labels=["source"]
        )
        for follower in self._service.followers:
            status = follower.status()
            up.add_metric([status.name], 1.0 if status.alarm is None else 0.0)
            engines.add_metric([status.name], len(status.engines))
        yield from (up, engines)

    def _store(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        state, size = self._service.store.state, self._service.store.size
        yield GaugeMetricFamily(
            "specdeck_store_recording",
            "1 while the database can be written, 0 while records wait in memory",
            value=0.0 if state.trouble else 1.0,
        )
        yield GaugeMetricFamily(
            "specdeck_store_waiting_writes", "Writes not stored yet", value=state.waiting
        )
        yield CounterMetricFamily(
            "specdeck_store_refused_writes",
            "Writes refused because too many waited",
            value=state.refused,
        )
        if size is not None:
            yield GaugeMetricFamily(
                "specdeck_store_bytes", "Size of the database file", value=size.file
            )
            yield GaugeMetricFamily(
                "specdeck_store_log_bytes", "Size of its write-ahead log", value=size.wal
            )
        removed = CounterMetricFamily(
            "specdeck_store_removed_rows", "Rows removed by retention", labels=("kind",)
        )
        for kind, number in self._service.maintenance.removed._asdict().items():
            removed.add_metric([kind], number)
        yield removed
        unrecorded = CounterMetricFamily(
            "specdeck_unrecorded_observations", "Observations that were left out", labels=_ENGINE
        )
        owed = GaugeMetricFamily(
            "specdeck_owed_records", "Decisions and others kept in memory for later", labels=_ENGINE
        )
        lost = CounterMetricFamily(
            "specdeck_lost_records", "Decisions and others given up", labels=_ENGINE
        )
        for runner in self._service.runners.values():
            name, recorder = runner.engine_id, runner.recorder
            unrecorded.add_metric([name], recorder.unrecorded)
            owed.add_metric([name], recorder.owed)
            lost.add_metric([name], recorder.owed_lost)
        yield from (unrecorded, owed, lost)

    def _engines(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily(
            "specdeck_engine_up", "1 if the last poll got a sample", labels=_ENGINE
        )
        desired = GaugeMetricFamily(
            "specdeck_desired_tier", "1 for the tier asked for", labels=("engine", "tier")
        )
        confirmed = GaugeMetricFamily(
            "specdeck_confirmed_tier",
            "1 for the tier that every observed rank reports",
            labels=("engine", "tier"),
        )
        running = GaugeMetricFamily(
            "specdeck_concurrency_requests",
            "Requests in the running decode batches",
            labels=_ENGINE,
        )
        rate = GaugeMetricFamily(
            "specdeck_decode_tokens_per_second", "Output tokens per second", labels=_ENGINE
        )
        accept = GaugeMetricFamily(
            "specdeck_accept_length_tokens",
            "Tokens per verify step and request, bonus token included",
            labels=_ENGINE,
        )
        stale = GaugeMetricFamily(
            "specdeck_sample_age_seconds",
            "Age of the last fresh sample at the tick",
            labels=_ENGINE,
        )
        override = GaugeMetricFamily(
            "specdeck_override_left_seconds", "Time an override has left", labels=_ENGINE
        )
        alarms = GaugeMetricFamily("specdeck_alarms", "Alarms raised now", labels=_ENGINE)
        alarm = GaugeMetricFamily(
            "specdeck_alarm", "1 for each alarm that is up", labels=("engine", "code")
        )
        for status in self._service.statuses():
            name, tick = status.engine.engine_id, status.tick
            if tick is None:
                continue
            sample = tick.observation if isinstance(tick.observation, Sample) else None
            up.add_metric([name], 0.0 if sample is None else 1.0)
            alarms.add_metric([name], float(len(tick.alarms)))
            for code in dict.fromkeys(one.code for one in tick.alarms):
                alarm.add_metric([name, code], 1.0)
            stale.add_metric([name], tick.stale_s)
            if tick.desired is not None:
                desired.add_metric([name, tick.desired], 1.0)
            if tick.confirmed is not None:
                confirmed.add_metric([name, tick.confirmed], 1.0)
            if sample is not None and sample.concurrency is not None:
                running.add_metric([name], sample.concurrency)
            if sample is not None and sample.accept_length is not None:
                accept.add_metric([name], sample.accept_length)
            if tick.decode_tok_s is not None:
                rate.add_metric([name], tick.decode_tok_s)
            if tick.override_left_s is not None:
                override.add_metric([name], tick.override_left_s)
        yield from (up, desired, confirmed, running, rate, accept, stale, override, alarms, alarm)

    def _loops(self) -> Iterator[CounterMetricFamily]:
        polls = CounterMetricFamily("specdeck_polls", "Polls made", labels=_ENGINE)
        gaps = CounterMetricFamily("specdeck_gaps", "Polls that failed", labels=_ENGINE)
        spent = CounterMetricFamily(
            "specdeck_poll_seconds", "Time spent waiting for polls", labels=_ENGINE
        )
        failures = CounterMetricFamily(
            "specdeck_loop_failures", "Unexpected failures of an engine's loop", labels=_ENGINE
        )
        decisions = CounterMetricFamily(
            "specdeck_decisions", "Decisions by what became of them", labels=("engine", "outcome")
        )
        commands = CounterMetricFamily(
            "specdeck_commands", "Commands by the engine's answer", labels=("engine", "answer")
        )
        for runner in self._service.runners.values():
            name, counts = runner.engine_id, runner.counts
            polls.add_metric([name], counts.polls)
            gaps.add_metric([name], counts.gaps)
            spent.add_metric([name], counts.poll_s)
            failures.add_metric([name], counts.failures)
            for outcome, number in counts.decisions.items():
                decisions.add_metric([name, outcome], number)
            for kind, number in counts.commands.items():
                commands.add_metric([name, kind], number)
        yield from (polls, gaps, spent, failures, decisions, commands)
