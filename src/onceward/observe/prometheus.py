"""Events as Prometheus metrics: `onceward_<name>_total{scope}` for each name in `model.counts`. Keys are never labels.

    from onceward.observe import prometheus

    prometheus.export(once)

The label `scope` is the operation, without its tenant: labels must not grow with the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from onceward.errors import MissingExtra
from onceward.model.counts import COUNTED, name_of, operation_of

from .events import Event

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter
    from prometheus_client.core import GaugeMetricFamily

    from .pending import Client

PROCESSED = "onceward.processed"
OLD_PENDING = "onceward_old_pending"


class Metrics:
    """The metrics in one registry, shared by all clients that are exported there."""

    def __init__(self, registry: CollectorRegistry, processed: str) -> None:
        from prometheus_client import Counter

        self._counters = {
            name: Counter(f"onceward_{name}", f"{what[0].upper()}{what[1:]}.", ["scope"], registry=registry)
            for name, what in COUNTED.items()
        }
        self._processed: Counter = Counter(
            processed.replace(".", "_"),
            "Calls that were answered with a result: by doing it now, or by a replay.",
            ["scope", "replay"],
            registry=registry,
        )
        self._known: set[str] = set()

    def hear(self, event: Event) -> None:
        name = name_of(event.name, state=event.state, reason=event.reason)
        if name is None:
            return
        scope = operation_of(event.scope)
        if scope not in self._known:
            self._begin(scope)
        self._counters[name].labels(scope).inc()
        if name in ("executed", "replayed"):
            self._processed.labels(scope, "true" if name == "replayed" else "false").inc()

    def _begin(self, scope: str) -> None:
        """Every counter of a scope begins at 0: Prometheus does not see the step from nothing to the first."""
        for counter in self._counters.values():
            counter.labels(scope)
        for replay in ("true", "false"):
            self._processed.labels(scope, replay)
        self._known.add(scope)


class OldPending:
    """Asks the store at every scrape."""

    def __init__(self, ask: Callable[[], dict[str, int]]) -> None:
        self._ask = ask

    def collect(self) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(OLD_PENDING, "Records that are PENDING for too long.", labels=["scope"])
        for scope, number in {"": 0, **self._ask()}.items():  # the first, so that 0 is not the same as no answer
            family.add_metric([scope], number)
        yield family


_metrics: WeakKeyDictionary[Any, dict[str, Metrics]] = WeakKeyDictionary()


def export(
    once: Client,
    registry: CollectorRegistry | None = None,
    *,
    processed: str = PROCESSED,
    pending: bool = True,
    rules: dict[str, Any] | None = None,
) -> Callable[[], None]:
    """Count the events of this client in a registry (prometheus_client's own, unless given); returns how to stop.

    `processed` is the name of the counter with the label `replay`; dots become underscores. `pending=False` leaves the
    store alone at a scrape: one process of many is enough to ask it. `rules` are thresholds, as for `check`.
    """
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtra(
            "metrics for Prometheus need prometheus-client", hint='pip install "onceward[prometheus]"'
        ) from error
    registry = prometheus_client.REGISTRY if registry is None else registry
    here = _metrics.setdefault(registry, {})
    if processed not in here:
        here[processed] = Metrics(registry, processed)
    stop = once.subscribe(here[processed].hear)
    if not pending:
        return stop
    from .pending import asker

    collector: Any = OldPending(asker(once, rules or {}))
    registry.register(collector)

    def stop_both() -> None:
        stop()
        registry.unregister(collector)

    return stop_both
