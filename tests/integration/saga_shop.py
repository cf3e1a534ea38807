"""A shop whose orders are sagas, sync or async: what its steps did, and which errors they raise."""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from onceward.sagas import Step, StepContext
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient, make_backend


class Refused(Exception):
    """The remote's final answer."""


@pytest.fixture(params=["memory", *os.environ.get("ONCEWARD_TEST_BACKENDS", "").split()])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """The memory store is enough where the store makes no difference; the soak adds servers."""
    return make_backend(request, tmp_path, clock)


on_every_store = pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres", "valkey"], indirect=True)
"""For tests that depend on how a store keeps a note across claims, renewals, settlements and resolutions."""


class Saga:
    """A saga, sync or async, called as blocking code."""

    def __init__(self, client: SyncClient, saga: Any) -> None:
        self._client = client
        self.saga = saga

    def __call__(self, **given: Any) -> Any:
        return self._client.wait(self.saga(**given))

    def outcome(self, **given: Any) -> Any:
        return self._client.wait(self.saga.outcome(**given))

    def read(self, **given: Any) -> Any:
        return self._client.wait(self.saga.read(**given))

    def resolve(self, finding: Any, **given: Any) -> None:
        self._client.wait(self.saga.resolve(finding, **given))

    def retry(self, **given: Any) -> None:
        self._client.wait(self.saga.retry(**given))


class Shop:
    """Logs what the steps do, in order. The action of that name raises the errors in `trouble`, one per call."""

    def __init__(self, client: SyncClient) -> None:
        self.client = client
        self.log: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.trouble: dict[str, list[BaseException]] = {}

    def act(self, name: str, value: Any = None) -> Callable[[StepContext], Any]:
        def act(step: StepContext) -> Any:
            self.log.append(name)
            self.keys.setdefault(name, set()).add(step.key)
            waiting = self.trouble.get(name)
            if waiting:
                raise waiting.pop(0)
            return value

        return self.client.work(act)

    def step(self, name: str, value: Any = None, **choices: Any) -> Step:
        choices.setdefault("retry_delay", 0)
        if "kind" not in choices:
            choices["undo"] = self.act(f"undo {name}")
        return Step(name, self.act(name, value), **choices)

    def saga(self, *steps: Step, **choices: Any) -> Saga:
        return Saga(self.client, self.client.once.saga("order", *steps, key="order:{number}", **choices))

    def usual(self, **choices: Any) -> Saga:
        steps = (
            self.step("reserve", "seat 5"),
            self.step("charge", Decimal("9.90"), final=Refused),
            self.step("ship", kind="pivot", final=Refused),
            self.step("mail", kind="retriable"),
        )
        return self.saga(*steps, **choices)


@pytest.fixture
def shop(client: SyncClient) -> Shop:
    return Shop(client)
