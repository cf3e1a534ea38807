"""Export events as Prometheus metrics: `onceward_<name>_total{scope}` for each name in `protocol.counters`.

Keys are never labels.

    from onceward.observe import prometheus

    prometheus.export(once)

The label `scope` is the operation, without its tenant: labels must not grow with the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from onceward.engine.events import Event
from onceward.engine.totals import Labels
from onceward.errors import MissingExtra
from onceward.protocol.counters import COUNTER_NAMES, counter_name

from .gauges import GAUGES, figures_reader

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter
    from prometheus_client.core import GaugeMetricFamily

    from .gauges import ObservedClient, ReadFigures

__all__ = ["export"]

PROCESSED = "onceward.processed"


class Metrics:
    """The metrics of one registry, shared by all clients that are exported there."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter

        self._registry = registry
        self._counters = {
            name: Counter(f"onceward_{name}", f"{what[0].upper()}{what[1:]}.", ["scope"], registry=registry)
            for name, what in COUNTER_NAMES.items()
        }
        self._processed: dict[str, Counter] = {}
        self._labels = Labels()
        self._known: set[tuple[str, str]] = set()
        self._pending = RecordGauges()

    def listener(self, processed: str, operation: str | None) -> Callable[[Event], None]:
        """Return a listener for a client. `processed` is the name of the counter with the label `replay`."""
        from prometheus_client import Counter

        name = processed.replace(".", "_")
        if name not in self._processed:
            self._processed[name] = Counter(
                name,
                "Calls that returned a result: executed now, or replayed.",
                ["scope", "replay"],
                registry=self._registry,
            )
        return partial(self._on_event, name, operation)

    def _on_event(self, processed: str, operation: str | None, event: Event) -> None:
        name = counter_name(event.name, state=event.state, reason=event.reason)
        if name is None:
            return
        scope = self._labels.of(event.scope)
        if (processed, scope) not in self._known:
            self._initialise(processed, scope)
        self._counters[name].labels(scope).inc()
        if name in ("executed", "replayed") and operation in (None, scope.rpartition("/")[2]):
            self._processed[processed].labels(scope, "true" if name == "replayed" else "false").inc()

    def _initialise(self, processed: str, scope: str) -> None:
        """Start every counter of a scope at 0: Prometheus does not see an increase to the first sample."""
        for counter in self._counters.values():
            counter.labels(scope)
        for replay in ("true", "false"):
            self._processed[processed].labels(scope, replay)
        self._known.add((processed, scope))

    def add_gauges(self, read: ReadFigures) -> Callable[[], None]:
        """Read these figures at every scrape. Return a function that stops it."""
        if not self._pending.readers:
            self._registry.register(self._pending)
        self._pending.readers += (read,)

        def stop() -> None:
            if read in self._pending.readers:
                self._pending.readers = tuple(one for one in self._pending.readers if one is not read)
                if not self._pending.readers:
                    self._registry.unregister(self._pending)

        return stop


class RecordGauges:
    """Reads the stores at every scrape. Clients of one store report the same figures, so they are not added up."""

    readers: tuple[ReadFigures, ...] = ()

    def describe(self) -> list[GaugeMetricFamily]:
        """Describe the metrics without reading a store: a registry calls this when the collector is registered."""
        return [self._family(field) for field in GAUGES]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        answers = [found for read in self.readers if (found := read()) is not None]
        for field in GAUGES:
            family = self._family(field)
            figures = [getattr(found, field) for found in answers]
            scopes = {"", *chain.from_iterable(figures)} if answers else set()  # "": 0 differs from no answer
            for scope in sorted(scopes):
                family.add_metric([scope], max(one.get(scope, 0) for one in figures))
            yield family

    def _family(self, field: str) -> GaugeMetricFamily:
        from prometheus_client.core import GaugeMetricFamily

        name, what = GAUGES[field]
        return GaugeMetricFamily(f"onceward_{name}", f"{what[0].upper()}{what[1:]}.", labels=["scope"])


_metrics: WeakKeyDictionary[Any, Metrics] = WeakKeyDictionary()


def export(
    once: ObservedClient,
    registry: CollectorRegistry | None = None,
    *,
    processed: str = PROCESSED,
    processed_operation: str | None = None,
    pending: bool = True,
    rules: dict[str, Any] | None = None,
) -> Callable[[], None]:
    """Count the events of a client in a Prometheus registry.

    Args:
        once: The client.
        registry: The registry. The default is the global one.
        processed: The name of the counter with the label `replay`; dots become underscores.
        processed_operation: The only operation that `processed` counts. Set it if an HTTP request runs another
            operation: otherwise both are counted.
        pending: Whether a scrape reads figures from the store. One process of many is enough for that.
        rules: Thresholds, as for `check`.

    Returns:
        A function that stops counting.

    Raises:
        MissingExtra: `prometheus-client` is not installed.
    """
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtra(
            "metrics for Prometheus need prometheus-client", hint='pip install "onceward[prometheus]"'
        ) from error
    registry = prometheus_client.REGISTRY if registry is None else registry
    metrics = _metrics.get(registry)
    if metrics is None:
        metrics = _metrics[registry] = Metrics(registry)
    stops = [once.subscribe(metrics.listener(processed, processed_operation))]
    if pending:
        stops.append(metrics.add_gauges(figures_reader(once, rules or {})))

    def stop() -> None:
        for one in stops:
            one()

    return stop
