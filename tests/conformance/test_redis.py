"""The whole kit on Valkey, in fake time and in the server's own; the table, fencing and values on older servers too."""

from __future__ import annotations

from typing import Any

from tests.conformance.on_redis import OnRedis


class TestValkey(OnRedis):
    """In fake time, so that every check runs."""


class WithoutTheLongOnes(OnRedis):
    """The long checks run in fake time only."""

    test_random_histories_agree_with_the_state_table = None  # type: ignore[assignment]
    test_processes_never_own_a_key_at_the_same_time = None  # type: ignore[assignment]
    test_processes_that_deliver_a_history_end_in_the_same_state = None  # type: ignore[assignment]


class TestValkeyInItsOwnTime(WithoutTheLongOnes):
    """Leases and windows by the server's clock, as in production."""

    fake_clock = False


class InOneMode(WithoutTheLongOnes):
    """One mode is enough for older servers: both modes run on Valkey."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", ["blocking"])


class TestRedis7(InOneMode):
    kind = "redis7"


class TestRedis6(InOneMode):
    kind = "redis6"
