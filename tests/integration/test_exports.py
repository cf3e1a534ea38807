"""Prometheus and OpenTelemetry: the same events, the same names as in `stats`, no keys; and outcomes on spans."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from onceward import AsyncOnce, ConfigurationError, Once, StoreUnavailable
from onceward.engine.events import LEVELS
from onceward.engine.totals import OTHERS
from onceward.errors import MissingExtra
from onceward.observe import Event, opentelemetry, prometheus
from onceward.observe.gauges import GAUGES
from onceward.protocol.counters import COUNTER_NAMES
from onceward.stores import MemoryStore
from onceward.testing.clock import FakeClock

SECRET = "jane@example.com"


def play(once: Once) -> None:
    """Emit events of every kind."""
    submit = once(key="{user}", name="submission")(lambda user: user)
    submit(SECRET)
    submit(SECRET)
    submit("another")
    once.using(tenant="acme").run(SECRET, int)
    for name in LEVELS:
        for state in ("", "PENDING", "FAILED", "PARKED", "COMPLETED"):
            once.engine.bus.emit(Event(name=name, key=SECRET, scope="shop/made", state=state, reason="refused"))


def samples(registry: CollectorRegistry) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels.get("scope", ""), sample.labels.get("replay", "")): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.mark.mission("B8")
def test_prometheus_has_a_counter_for_every_name_and_one_with_replay() -> None:
    registry = CollectorRegistry()
    with Once(MemoryStore()) as once:
        prometheus.export(once, registry)
        play(once)
        found = samples(registry)
    assert {name for name, _, _ in found} == {
        *(f"onceward_{name}_total" for name in COUNTER_NAMES),
        "onceward_processed_total",
        *(f"onceward_{name}" for name, _ in GAUGES.values()),
    }
    assert found["onceward_executed_total", "default/submission", ""] == 2
    assert found["onceward_replayed_total", "default/submission", ""] == 1
    assert found["onceward_processed_total", "default/submission", "false"] == 2
    assert found["onceward_processed_total", "default/submission", "true"] == 1


@pytest.mark.mission("B8")
def test_the_counter_with_replay_can_have_the_name_that_a_dashboard_knows() -> None:
    registry = CollectorRegistry()
    with Once(MemoryStore()) as once:
        prometheus.export(once, registry, processed="submission.processed", pending=False)
        play(once)
        found = samples(registry)
    assert found["submission_processed_total", "default/submission", "true"] == 1
    assert found["submission_processed_total", "default/submission", "false"] == 2


def test_keys_and_tenants_are_never_labels() -> None:
    registry = CollectorRegistry()
    with Once(MemoryStore()) as once:
        prometheus.export(once, registry)
        play(once)
        text = generate_latest(registry).decode()
    assert SECRET not in text
    assert "acme" not in text
    assert 'scope="default/shared"' in text


def test_operations_that_are_made_of_data_do_not_flood_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.engine.totals.MAX_SCOPES", 3)
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    with Once(MemoryStore()) as once:
        prometheus.export(once, registry)
        opentelemetry.export(once, provider)
        for number in range(9):
            with once.claim("a", name=f"made-of-data-{number}"):
                pass
        found, measured = samples(registry), points(reader)
    provider.shutdown()
    assert found["onceward_executed_total", OTHERS, ""] == measured["onceward.executed", OTHERS, None] == 6
    assert len([name for name, _, _ in found if name == "onceward_executed_total"]) == 4
    assert len([name for name, _, _ in measured if name == "onceward.executed"]) == 4


def test_every_counter_of_a_scope_begins_at_zero() -> None:
    """Otherwise the first count of a scope is not an increase, and no alert sees it."""
    registry = CollectorRegistry()
    with Once(MemoryStore()) as once:
        prometheus.export(once, registry)
        once.run("a", int)
        found = samples(registry)
    assert found["onceward_unprotected_total", "default/shared", ""] == 0
    assert len([name for name, scope, _ in found if scope == "default/shared"]) == len(COUNTER_NAMES) + 2


def test_old_pending_queries_the_store_at_each_scrape() -> None:
    registry, clock = CollectorRegistry(), FakeClock()
    with Once(MemoryStore(clock=clock)) as once:
        prometheus.export(once, registry, rules={"old_pending_age": "10m"})
        block = once.claim("a", name="charge")
        block.__enter__()
        assert samples(registry)["onceward_old_pending", "", ""] == 0
        clock.advance("11m")
        assert samples(registry)["onceward_old_pending", "default/charge", ""] == 1
        block.__exit__(None, None, None)
        assert ("onceward_old_pending", "default/charge", "") not in samples(registry)


def test_a_store_that_is_down_does_not_stop_the_other_figures(tmp_path: Any) -> None:
    registry = CollectorRegistry()
    with Once(MemoryStore()) as once:
        prometheus.export(once, registry)
        once.run("a", int)
        once.store.scan = down  # type: ignore[method-assign]
        found = samples(registry)
    assert found["onceward_executed_total", "default/shared", ""] == 1
    assert "onceward_old_pending" not in {name for name, _, _ in found}, "unknown, so not exported as 0"


async def down(*_: object, **__: object) -> Any:
    raise StoreUnavailable("down")


def test_several_clients_share_a_registry_and_each_can_stop() -> None:
    registry = CollectorRegistry()
    with Once(MemoryStore()) as one, Once(MemoryStore()) as two:
        stop = prometheus.export(one, registry)
        prometheus.export(two, registry, pending=False)
        one.run("a", int)
        two.run("a", int)
        assert samples(registry)["onceward_executed_total", "default/shared", ""] == 2
        stop()
        one.run("b", int)
        assert samples(registry)["onceward_executed_total", "default/shared", ""] == 2
        assert not [name for name, _, _ in samples(registry) if name == "onceward_old_pending"]
        prometheus.export(one, registry)


def test_two_clients_are_exported_side_by_side_to_the_usual_registry() -> None:
    """The registry collects what is registered: duplicate names are refused, and this must not query the store."""
    registry = CollectorRegistry(auto_describe=True)
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    with Once(store, app="one") as one, Once(store, app="two") as two:
        store.scan, original = down, store.scan  # type: ignore[method-assign]
        stops = [prometheus.export(once, registry) for once in (one, two)]
        store.scan = original  # type: ignore[method-assign]
        with two.claim("a", name="charge"):
            clock.advance("31m")
            text = generate_latest(registry).decode()
        assert text.count("# TYPE onceward_old_pending gauge") == 1
        assert text.count('onceward_old_pending{scope="two/charge"} 1.0') == 1, "both have the same store"
        for stop in stops:
            assert "onceward_old_pending" in generate_latest(registry).decode()
            stop()
        assert "onceward_old_pending" not in generate_latest(registry).decode()


def test_clients_of_one_registry_can_have_the_counter_with_replay_under_names_of_their_own() -> None:
    registry = CollectorRegistry()
    with Once(MemoryStore()) as one, Once(MemoryStore()) as two:
        prometheus.export(one, registry, processed="submission.processed")
        prometheus.export(two, registry)
        one.run("a", int)
        two.run("a", int)
        found = samples(registry)
    assert found["submission_processed_total", "default/shared", "false"] == 1
    assert found["onceward_processed_total", "default/shared", "false"] == 1
    assert found["onceward_executed_total", "default/shared", ""] == 2


@pytest.mark.parametrize(
    ("module", "driver", "extra"),
    [(prometheus, "prometheus_client", "prometheus"), (opentelemetry, "opentelemetry", "opentelemetry")],
)
def test_the_error_for_a_missing_library_names_its_extra(
    module: Any, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with Once(MemoryStore()) as once, pytest.raises(MissingExtra, match=rf"onceward\[{extra}\]"):
        module.export(once)


def test_invalid_thresholds_are_refused_immediately() -> None:
    with Once(MemoryStore()) as once, pytest.raises(ConfigurationError, match="threshold"):
        prometheus.export(once, CollectorRegistry(), rules={"age": 1})


# ── OpenTelemetry ──


def points(reader: InMemoryMetricReader) -> dict[tuple[str, str, object], float]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, str((point.attributes or {}).get("scope")), (point.attributes or {}).get("replay")): point.value  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


@pytest.mark.mission("B8")
def test_opentelemetry_has_the_same_names_and_the_metric_of_the_mission() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with Once(MemoryStore()) as once:
        opentelemetry.export(once, provider, processed="submission.processed")
        play(once)
        found = points(reader)
    names = {name for name, _, _ in found}
    assert names == {
        *(f"onceward.{name}" for name in COUNTER_NAMES),
        "submission.processed",
        *(f"onceward.{name}" for name, _ in GAUGES.values()),
    }
    assert found["submission.processed", "default/submission", True] == 1
    assert found["submission.processed", "default/submission", False] == 2
    assert not [scope for _, scope, _ in found if SECRET in scope or "acme" in scope]
    provider.shutdown()


def test_prometheus_opentelemetry_and_the_store_agree() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    with Once(MemoryStore(), counters=True) as once:
        prometheus.export(once, registry, pending=False)
        opentelemetry.export(once, provider, pending=False)
        with pytest.raises(ZeroDivisionError):
            once.run("failing", lambda: 1 // 0)
        for _ in range(3):
            once.run("a", int)
        assert once.counters is not None
        assert once.counters.write()
        stats = once.stats()
    scope = "default/shared"
    in_store = {name: stats.total(name, scope) for name in COUNTER_NAMES if stats.total(name, scope)}
    assert in_store == {"executed": 1, "replayed": 2, "failed": 1}
    found = samples(registry)
    assert {name: found[f"onceward_{name}_total", scope, ""] for name in in_store} == in_store
    measured = points(reader)
    assert {name: measured[f"onceward.{name}", scope, None] for name in in_store} == in_store
    provider.shutdown()


@pytest.fixture
def spans() -> Any:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("tests"), exporter
    provider.shutdown()


def test_the_span_of_a_call_carries_its_outcome(spans: Any) -> None:
    tracer, exporter = spans
    with Once(MemoryStore()) as once:
        opentelemetry.export(once, MeterProvider(), pending=False)
        for _ in range(2):
            with tracer.start_as_current_span("order"):
                once.run(SECRET, int)
        once.run("without a span", int)
    one, two = exporter.get_finished_spans()
    assert (one.attributes["onceward.outcome"], two.attributes["onceward.outcome"]) == ("executed", "replayed")
    assert [event.name for event in one.events] == ["onceward.completed"]
    assert one.events[0].attributes["onceward.attempt"] == 1
    assert SECRET not in one.to_json() + two.to_json()


def test_the_span_of_an_async_call_carries_its_outcome(spans: Any) -> None:
    tracer, exporter = spans

    async def work() -> int:
        return 1

    async def main() -> None:
        async with AsyncOnce(MemoryStore()) as once:
            opentelemetry.export(once, MeterProvider(), pending=False)

            async def call(key: str) -> None:
                with tracer.start_as_current_span(key):
                    await once.run(key, work)

            await once.run("b", work)
            await asyncio.gather(call("a"), call("b"))

    asyncio.run(main())
    outcomes = {span.name: span.attributes["onceward.outcome"] for span in exporter.get_finished_spans()}
    assert outcomes == {"a": "executed", "b": "replayed"}


@pytest.mark.finding("N23")
def test_prometheus_has_gauges_for_parked_records_and_final_failures() -> None:
    def fail() -> None:
        raise ValueError("no such card")

    registry = CollectorRegistry()
    with Once("memory://", max_attempts=1) as once:
        prometheus.export(once, registry)
        once.outcome("mail", fail)
        found = samples(registry)
        assert found["onceward_final_failures", "default/shared", ""] == 1
        assert found["onceward_parked_records", "", ""] == 0
        assert found["onceward_stuck_schedules", "", ""] == 0
