"""A shop whose orders are sagas, in either colour: what its steps did, and the trouble that they have."""

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
    """The remote's last word."""


@pytest.fixture(params=["memory", *os.environ.get("ONCEWARD_TEST_BACKENDS", "").split()])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """Memory is enough for what no store decides; the soak adds servers."""
    return make_backend(request, tmp_path, clock)


on_every_store = pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres", "valkey"], indirect=True)
"""What depends on what a store keeps of a note, across claims, renewals, settlements and resolutions."""


class Saga:
    """A saga of either colour, called as blocking code."""

    def __init__(self, client: SyncClient, saga: Any) -> None:
        self._client = client
        self.saga = saga

    def __call__(self, **given: Any) -> Any:
        return self._client._wait(self.saga(**given))

    def outcome(self, **given: Any) -> Any:
        return self._client._wait(self.saga.outcome(**given))

    def read(self, **given: Any) -> Any:
        return self._client._wait(self.saga.read(**given))

    def resolve(self, finding: Any, **given: Any) -> None:
        self._client._wait(self.saga.resolve(finding, **given))

    def retry(self, **given: Any) -> None:
        self._client._wait(self.saga.retry(**given))


class Shop:
    """What the steps do, in the order in which they did it. `trouble` is raised by the act of that name, in turn."""

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

        return self.client._work(act)

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
