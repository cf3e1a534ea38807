"""The supervisor: hands deliveries to worker processes, kills workers at random instants, and starts new ones."""

from __future__ import annotations

import contextlib
import json
import os
import random
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from examples.demo.backlog import Backlog
from examples.demo.traffic import Delivery
from examples.demo.worker import Answer

ROOT = Path(__file__).resolve().parents[2]
AGAIN = (0.05, 0.25)  # seconds until a delivery that was not acknowledged comes back
LEASES = (1.0, 2.0)  # seconds: how long a killed worker keeps the key that it held
LOOK = 0.05  # seconds between looks at the scoreboard
STUCK = 60.0  # seconds without any acknowledgement: something is wrong


class Trouble(Exception):
    """The run cannot go on; nothing can be said about the promises."""


class Kill(NamedTuple):
    """Once so many deliveries are acknowledged, and some milliseconds later: wherever the victim is just then."""

    after: int
    delay: float
    victim: int


def plan_kills(kills: int, deliveries: int, workers: int, seed: int) -> list[Kill]:
    """All of them from the seed, and none at a chosen point of the work."""
    dice = random.Random(seed + 1)
    return sorted(
        Kill(int(deliveries * dice.uniform(0.02, 0.9)), dice.uniform(0, 0.02), dice.randrange(workers))
        for _ in range(kills)
    )


class Worker:
    """One process, and the delivery that it has in hand."""

    def __init__(self, arguments: list[str], log: IO[bytes]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo.worker", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a Ctrl-C is for the supervisor, which then ends the others
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.inbox = self.process.stdin
        self.outbox = self.process.stdout
        self.in_hand: Delivery | None = None
        self.killed = False
        self._heard = b""

    def hand(self, delivery: Delivery) -> None:
        self.in_hand = delivery
        with contextlib.suppress(BrokenPipeError):  # it is dead already: its outbox will say so
            self.inbox.write(json.dumps(delivery).encode() + b"\n")
            self.inbox.flush()

    def hear(self) -> list[Answer] | None:
        """What it answered since; None if it is gone."""
        piece = os.read(self.outbox.fileno(), 65536)
        if not piece:
            return None
        *lines, self._heard = (self._heard + piece).split(b"\n")
        return [Answer(*json.loads(line)) for line in lines]

    def kill(self) -> None:
        self.killed = True
        self.process.kill()

    def bury(self) -> int:
        with contextlib.suppress(BrokenPipeError):
            self.inbox.close()
        self.outbox.close()
        return self.process.wait()


class Crew:
    """Runs the backlog down. `counts` has what the workers said, and the kills."""

    def __init__(
        self, backlog: Backlog, kills: list[Kill], *, workers: int, kind: str, folder: Path, seed: int
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._backlog = backlog
        self._plan = list(reversed(kills))
        self._due: list[tuple[float, int]] = []
        self._kind = kind
        self._database = folder / "demo.db"
        self._log_path = folder / "workers.log"
        self._dice = random.Random(seed + 2)
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._size = workers
        self._progress = time.monotonic()

    def run(self, show: Callable[[Counter[str]], None]) -> None:
        with self._log_path.open("ab") as self._log:
            try:
                for place in range(self._size):
                    self._start(place)
                while self._backlog.left:
                    self._step()
                    show(self.counts)
            finally:
                for worker in self._workers:
                    worker.kill()
                    worker.bury()
                self._selector.close()

    def _step(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.in_hand is None and (delivery := self._backlog.take(now)) is not None:
                worker.hand(delivery)
        self._kill(now)
        for key, _ in self._selector.select(self._patience(now)):
            self._hear(key.data)
        if now - self._progress > STUCK:
            raise Trouble(f"no delivery was acknowledged for {STUCK:.0f} s{self._tail()}")

    def _patience(self, now: float) -> float:
        return max(0.0, min([LOOK, *(at - now for at, _ in self._due)]))

    def _start(self, place: int) -> None:
        lease = f"{self._dice.uniform(*LEASES):.2f}"
        worker = Worker([self._kind, str(self._database), lease], self._log)
        self._workers[place : place + 1] = [worker]
        self._selector.register(worker.outbox, selectors.EVENT_READ, place)

    def _kill(self, now: float) -> None:
        while self._plan and self._plan[-1].after <= self.counts["acknowledged"]:
            kill = self._plan.pop()
            self._due.append((now + kill.delay, kill.victim))
        for at, place in [due for due in self._due if due[0] <= now]:
            self._due.remove((at, place))
            alive = [worker for worker in self._workers[place:] + self._workers[:place] if not worker.killed]
            for worker in alive[:1]:
                worker.kill()
                self.counts["kills"] += 1

    def _hear(self, place: int) -> None:
        worker = self._workers[place]
        answers = worker.hear()
        if answers is None:
            self._replace(place)
            return
        for answer in answers:
            delivery, worker.in_hand = worker.in_hand, None
            if delivery is None or delivery.number != answer.number:
                raise Trouble(f"a worker answered for delivery {answer.number}, which it was not given")
            self._count(answer, delivery)

    def _count(self, answer: Answer, delivery: Delivery) -> None:
        self.counts[answer.said] += 1
        self.counts["taken over"] += answer.attempt > 1
        if answer.said in ("executed", "replayed"):
            self._backlog.acknowledge()
            self.counts["acknowledged"] += 1
            self._progress = time.monotonic()
        else:
            self._return(delivery)

    def _return(self, delivery: Delivery) -> None:
        self._backlog.put_back(delivery, time.monotonic() + self._dice.uniform(*AGAIN))

    def _replace(self, place: int) -> None:
        """A worker is gone. What it had in hand was not acknowledged, so it comes back."""
        worker = self._workers[place]
        self._selector.unregister(worker.outbox)
        status = worker.bury()
        if not worker.killed:
            raise Trouble(f"a worker ended by itself, with status {status}{self._tail()}")
        if worker.in_hand is not None:
            self.counts["redelivered"] += 1
            self._return(worker.in_hand)
        self._start(place)

    def _tail(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()[-20:]
        return "".join(f"\n  {line}" for line in lines)
