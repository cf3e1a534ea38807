"""Tools for your tests: another store for a client (`override`), an off switch (`disabled`), and a fake clock.

`fake_threads.py` is a runtime that does not wait. `pytest_plugin.py` has the pytest fixtures.

Not imported here:

- `onceward.testing.storm` kills the workers of your handler and counts the effects;
- `onceward.testing.conformance` tests a store that you write (it needs pytest and Hypothesis);
- `onceward.testing.history` records histories and checks them.

Read `disabled.py` first, and `conformance/__init__.py` if you write a store.
"""

from .clock import FakeClock
from .disabled import disabled
from .fake_threads import FakeRuntime
from .override import override

__all__ = ["FakeClock", "FakeRuntime", "disabled", "override"]
