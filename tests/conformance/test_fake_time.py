from __future__ import annotations

import subprocess
import sys

import pytest

from onceward.protocol.runtime import Runtime
from onceward.runtime.threads import run
from onceward.testing.clock import NEW_YEAR_2026, FakeClock
from onceward.testing.fake_threads import FakeRuntime

SECOND = 1_000_000


def test_a_fake_clock_moves_only_when_advanced() -> None:
    clock = FakeClock()
    assert clock.now() == clock.now() == NEW_YEAR_2026
    clock.advance("10m")
    assert clock.now() == NEW_YEAR_2026 + 600 * SECOND
    clock.set_back("1h")
    assert clock.now() == NEW_YEAR_2026 - 3_000 * SECOND


@pytest.mark.fault("F44")
def test_monotonic_time_does_not_follow_a_clock_that_is_set_back() -> None:
    clock = FakeClock()
    runtime: Runtime = FakeRuntime(clock)
    clock.advance("10s")
    clock.set_back("1h")
    assert runtime.monotonic() == 10.0


def test_sleeping_in_a_fake_runtime_moves_the_clock_instead() -> None:
    clock = FakeClock()
    runtime = FakeRuntime(clock)
    run(runtime.sleep(3600))
    assert runtime.monotonic() == 3600.0
    assert clock.now() == NEW_YEAR_2026 + 3600 * SECOND


def test_an_open_gate_takes_no_time_and_a_closed_one_all_of_it() -> None:
    runtime = FakeRuntime(FakeClock())
    gate = runtime.gate()
    gate.open()
    run(gate.wait(60))
    assert runtime.monotonic() == 0.0
    run(gate.wait(60))
    assert runtime.monotonic() == 60.0


def test_the_kit_imports_neither_pytest_nor_hypothesis_by_itself() -> None:
    seen = "import sys, onceward.testing.conformance; print(sorted({'pytest', 'hypothesis'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_kit_refuses_to_run_without_asserts() -> None:
    kit = "import onceward.testing.conformance"
    refused = subprocess.run([sys.executable, "-O", "-c", kit], capture_output=True, text=True, check=False)
    assert "ConfigurationError" in refused.stderr
