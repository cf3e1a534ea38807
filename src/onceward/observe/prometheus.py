"""Events as Prometheus metrics: `onceward_<name>_total{scope}` for each name in `protocol.counters`.

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

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter
    from prometheus_client.core import GaugeMetricFamily

    from .old_pending import Ask, Client

PROCESSED = "onceward.processed"
OLD_PENDING = "onceward_old_pending"


class Metrics:
    """The metrics in one registry, shared by all clients that are exported there."""

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
        self._pending = OldPending()

    def hearing(self, processed: str) -> Callable[[Event], None]:
        """Listens to a client; `processed` is the name of the counter with the label `replay`."""
        from prometheus_client import Counter

        name = processed.replace(".", "_")
        if name not in self._processed:
            self._processed[name] = Counter(
                name,
                "Calls that were answered with a result: by doing it now, or by a replay.",
                ["scope", "replay"],
                registry=self._registry,
            )
        return partial(self._hear, name)

    def _hear(self, processed: str, event: Event) -> None:
        name = counter_name(event.name, state=event.state, reason=event.reason)
        if name is None:
            return
        scope = self._labels.of(event.scope)
        if (processed, scope) not in self._known:
            self._begin(processed, scope)
        self._counters[name].labels(scope).inc()
        if name in ("executed", "replayed"):
            self._processed[processed].labels(scope, "true" if name == "replayed" else "false").inc()

    def _begin(self, processed: str, scope: str) -> None:
        """Every counter of a scope begins at 0: Prometheus does not see the step from nothing to the first."""
        for counter in self._counters.values():
            counter.labels(scope)
        for replay in ("true", "false"):
            self._processed[processed].labels(scope, replay)
        self._known.add((processed, scope))

    def ask(self, ask: Ask) -> Callable[[], None]:
        """Ask this, too, at every scrape; returns how to stop."""
        if not self._pending.asks:
            self._registry.register(self._pending)
        self._pending.asks += (ask,)

        def stop() -> None:
            if ask in self._pending.asks:
                self._pending.asks = tuple(one for one in self._pending.asks if one is not ask)
                if not self._pending.asks:
                    self._registry.unregister(self._pending)

        return stop


class OldPending:
    """Asks the stores at every scrape. Clients of one store tell the same figures, so these are not added up."""

    asks: tuple[Ask, ...] = ()

    def describe(self) -> list[GaugeMetricFamily]:
        """What will be told; a registry asks for this at once, and no store must be needed for that."""
        return [self._family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = self._family()
        answers = [found for ask in self.asks if (found := ask()) is not None]
        scopes = {"", *chain.from_iterable(answers)} if answers else set()  # "": 0 is not the same as no answer
        for scope in sorted(scopes):
            family.add_metric([scope], max(found.get(scope, 0) for found in answers))
        yield family

    def _family(self) -> GaugeMetricFamily:
        from prometheus_client.core import GaugeMetricFamily

        return GaugeMetricFamily(OLD_PENDING, "Records that are PENDING for too long.", labels=["scope"])


_metrics: WeakKeyDictionary[Any, Metrics] = WeakKeyDictionary()


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
    here = _metrics.get(registry)
    if here is None:
        here = _metrics[registry] = Metrics(registry)
    stops = [once.subscribe(here.hearing(processed))]
    if pending:
        from .old_pending import asker

        stops.append(here.ask(asker(once, rules or {})))

    def stop() -> None:
        for one in stops:
            one()

    return stop
