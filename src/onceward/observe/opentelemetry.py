"""Export events as OpenTelemetry metrics, `onceward.<name>` for each name in `protocol.counters`, and on spans.

    from onceward.observe import opentelemetry

    opentelemetry.export(once)

The attribute `scope` is the operation, without its tenant; keys are never attributes. The span in which a call was made
gets the attribute `onceward.outcome`, and an event with the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from onceward._version import __version__
from onceward.engine.events import Event
from onceward.engine.totals import Labels
from onceward.errors import MissingExtra
from onceward.protocol.counters import COUNTER_NAMES, OUTCOMES, counter_name

from .gauges import GAUGES, figures_reader

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from .gauges import ObservedClient

PROCESSED = "onceward.processed"


def export(
    once: ObservedClient,
    meter_provider: MeterProvider | None = None,
    *,
    processed: str = PROCESSED,
    processed_operation: str | None = None,
    pending: bool = True,
    rules: dict[str, Any] | None = None,
) -> Callable[[], None]:
    """Count the events of a client with OpenTelemetry.

    Args:
        once: The client.
        meter_provider: The meter provider. The default is the global one.
        processed: The name of the counter with the attribute `replay`.
        processed_operation: The only operation that `processed` counts. Set it if an HTTP request runs another
            operation: otherwise both are counted.
        pending: Whether to export figures that are read from the store. One process of many is enough for that.
        rules: Thresholds, as for `check`.

    Returns:
        A function that stops counting.

    Raises:
        MissingExtra: `opentelemetry-api` is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise MissingExtra(
            "metrics and traces need opentelemetry-api", hint='pip install "onceward[opentelemetry]"'
        ) from error
    meter = metrics.get_meter("onceward", __version__, meter_provider)
    counters = {
        name: meter.create_counter(f"onceward.{name}", description=what) for name, what in COUNTER_NAMES.items()
    }
    answered = meter.create_counter(processed, description="calls that returned a result")
    labels = Labels()
    if pending:
        _observe_records(meter, once, rules or {})

    def on_event(event: Event) -> None:
        name = counter_name(event.name, state=event.state, reason=event.reason)
        if name is None:
            return
        label = labels.of(event.scope)
        scope = {"scope": label}
        counters[name].add(1, scope)
        if name in ("executed", "replayed") and processed_operation in (None, label.rpartition("/")[2]):
            answered.add(1, {**scope, "replay": name == "replayed"})
        span = trace.get_current_span()
        if span.is_recording():
            if name in OUTCOMES:
                span.set_attribute("onceward.outcome", name)
            span.add_event(f"onceward.{event.name}", {"onceward.scope": event.scope, "onceward.attempt": event.attempt})

    return once.subscribe(on_event)


def _observe_records(meter: Any, once: ObservedClient, rules: dict[str, Any]) -> None:
    """Observe each gauge. Each reads the store on its own: the library calls them in any order, once a minute."""
    from opentelemetry.metrics import Observation

    read = figures_reader(once, rules)

    def observe(field: str, _: CallbackOptions) -> Iterable[Observation]:
        found = read()
        figures = {} if found is None else {"": 0, **getattr(found, field)}  # "": 0 differs from no answer
        return [Observation(number, {"scope": scope}) for scope, number in figures.items()]

    for field, (name, what) in GAUGES.items():
        meter.create_observable_gauge(f"onceward.{name}", [partial(observe, field)], description=what)
