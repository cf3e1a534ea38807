"""The supervisor: sends deliveries to worker processes, kills and pauses workers at random, and starts new ones."""

from __future__ import annotations

import random
import selectors
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from . import pipes as messages
from .contract import ACKNOWLEDGED, HandlerResult, StormSetting, Trouble
from .delivery_queue import DeliveryQueue
from .faults import FaultSchedule
from .plan import Kill, Plan
from .process import EXIT_TIMEOUT, ForkServer, Worker
from .score import Score
from .traffic import StormDelivery

REDELIVERY_DELAY = (0.05, 0.25)  # seconds until an unacknowledged delivery is delivered again ...
MAX_BACKOFF = 3  # ... multiplied by up to this for further redeliveries: a dead worker keeps its key for a while
LEASES = (1.0, 2.0)  # seconds: how long a killed worker keeps its key
START_TIMEOUT = 60.0  # seconds for imports and connections
POLL_INTERVAL = 0.05  # seconds between updates of the scoreboard
MAX_LISTED = 5  # deliveries in a message
LOG_LINES = 20  # last lines of the log in a message


class Supervisor:
    """Processes the queue until it is empty. `score` counts the results, the kills and the pauses."""

    def __init__(self, system: str, plan: Plan, setting: StormSetting, queue: DeliveryQueue) -> None:
        self.score = Score()
        self._system = system
        self._plan = plan
        self._setting = setting
        self._queue = queue
        self._faults = FaultSchedule(plan)
        # This text is part of the seed: another one would change the leases of a run.
        self._rng = random.Random(f"{plan.seed} crew")  # plain: ok
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._returned: Counter[int] = Counter()
        self._orphans: set[str] = set()  # events whose worker was killed or paused
        self._log_path = Path(setting.folder) / "workers.log"
        self._started = self._last = time.monotonic()

    def run(self, show: Callable[[Score], None]) -> None:
        """Run until every delivery is acknowledged, and every paused worker has resumed.

        Raise `Trouble` if that is not possible. In any case, no process is left.
        """
        with self._log_path.open("ab") as log, ForkServer(self._system, log) as self._fork_server:
            try:
                self._start_workers(show)
                while not self._queue.empty or any(worker.is_busy for worker in self._workers):
                    self._step()
                    show(self.score)
                for worker in self._workers:  # they exit by themselves after the last acknowledgement, or are killed
                    worker.close_input()
                for worker in self._workers:
                    worker.wait(EXIT_TIMEOUT)
            finally:
                for worker in self._workers:
                    worker.kill()
                    worker.wait()
                self._selector.close()

    def _start_workers(self, show: Callable[[Score], None]) -> None:
        """Start the workers. The time of the run starts when all are ready: starting may take longer than the run."""
        if not self._fork_server.open(START_TIMEOUT):
            raise Trouble(f"{self._system} cannot be imported in a separate process{self._log_tail()}")
        for index in range(self._plan.workers):
            self._start(index)
        while not all(worker.ready for worker in self._workers):
            self._receive_all(POLL_INTERVAL)
            show(self.score)
            if time.monotonic() - self._last > START_TIMEOUT:
                raise Trouble(f"the workers have not started for {START_TIMEOUT:g} s{self._log_tail()}")
        self._started = self._last = time.monotonic()

    def _step(self) -> None:
        now = time.monotonic()
        self._update_progress(now)
        for worker in self._workers:
            if worker.pause_is_over(now):
                worker.resume()
        self._deliver(now)
        self._inject_faults(now)
        resume_times = [worker.resumes_at for worker in self._workers if worker.resumes_at is not None]
        soon = [at - now for at in self._faults.times + resume_times if at > now]
        self._receive_all(min([POLL_INTERVAL, *soon]))
        if now - self._last > self._plan.patience:
            raise Trouble(f"no delivery was acknowledged for {self._plan.patience:g} s{self._unfinished()}")

    def _deliver(self, now: float) -> None:
        for worker in self._workers:
            self._faults.advance(self._started_share, now)
            if worker.is_free and (delivery := self._next_delivery(now)) is not None:
                worker.send(delivery)
                self.score.delivered += 1

    def _next_delivery(self, now: float) -> StormDelivery | None:
        """Return the next delivery. Those of paused workers are never held back: others must take them over."""
        if not self._must_hold_back(now):
            return self._queue.take(now)
        paused = {worker.current.number for worker in self._workers if worker.is_late and worker.current is not None}
        return self._queue.take(now, among=paused)

    def _receive_all(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            self._receive(key.data)

    def _update_progress(self, now: float) -> None:
        self.score.seconds = now - self._started
        parts = [0.0]
        if self._plan.size:
            parts.append(self.score.acknowledged / self._plan.size)
        if self._plan.seconds is not None:
            parts.append(self.score.seconds / max(self._plan.seconds, POLL_INTERVAL))
            if self.score.seconds >= self._plan.seconds:
                self._queue.stop()
        self.score.progress = min(1.0, max(parts))

    def _start(self, index: int) -> None:
        lease = round(self._rng.uniform(*LEASES), 2)
        worker = self._fork_server.start(replace(self._setting, lease=lease))
        self._workers[index : index + 1] = [worker]
        self._selector.register(worker.outbox, selectors.EVENT_READ, index)

    @property
    def _started_share(self) -> float:
        """The share of the run that has started with the next delivery; if the run is limited in time, its progress."""
        if self._plan.seconds is not None or not self._plan.size:
            return self.score.progress
        return (self.score.acknowledged + self._in_progress + 1) / self._plan.size

    @property
    def _in_progress(self) -> int:
        """The number of unacknowledged deliveries that workers are processing. One of a paused worker counts once."""
        held = [worker.current for worker in self._workers if worker.current is not None]
        return len({delivery.number for delivery in held if self._queue.is_unacknowledged(delivery)})

    def _must_hold_back(self, now: float) -> bool:
        """Return whether deliveries must wait. If deliveries are counted, all faults must happen during the run."""
        if self._plan.seconds is not None or not self._plan.size:
            return False
        left = self._plan.size - self.score.acknowledged - self._in_progress
        return self._faults.must_hold_back(now, self._workers, left)

    def _inject_faults(self, now: float) -> None:
        for fault, victim in self._faults.due(now, self._workers):
            if isinstance(fault, Kill):
                victim.kill()
                self.score.killed += 1
            else:
                victim.pause(now, fault.beyond)
                self.score.paused += 1
                self._return_current(victim)

    def _return_current(self, worker: Worker) -> None:
        """Put the worker's delivery back into the queue, so that others process it."""
        if worker.current is not None:
            self._orphans.add(worker.current.event.id)
            self._put_back(worker.current)

    def _receive(self, index: int) -> None:
        worker = self._workers[index]
        results = worker.receive()
        if results is None:
            self._replace(index)
            return
        if worker.killed:
            return  # its acknowledgement is lost: the delivery is delivered again
        for received in results:
            if received.number == messages.READY:
                worker.ready = True
                continue
            delivery, worker.current = worker.current, None
            if delivery is None or delivery.number != received.number:
                raise Trouble(f"a worker sent a result for delivery {received.number}, which it did not get")
            self._settle(delivery, received.result, late=worker.is_late)
            worker.is_late = False

    def _settle(self, delivery: StormDelivery, result: HandlerResult, *, late: bool) -> None:
        again = not self._queue.is_unacknowledged(delivery)
        self.score.count(result, orphaned=delivery.event.id in self._orphans, again=again)
        if result.kind in ACKNOWLEDGED:
            self._queue.acknowledge(delivery)
            self._last = time.monotonic()
        elif not late:  # otherwise it was already put back
            self._put_back(delivery)

    def _put_back(self, delivery: StormDelivery) -> None:
        self._returned[delivery.number] += 1
        delay = self._rng.uniform(*REDELIVERY_DELAY) * min(self._returned[delivery.number], MAX_BACKOFF)
        self._queue.put_back(delivery, time.monotonic() + delay)

    def _replace(self, index: int) -> None:
        """Replace a worker that is gone. Its delivery was not acknowledged, so it is put back."""
        worker = self._workers[index]
        self._selector.unregister(worker.outbox)
        status = worker.wait()
        if not worker.killed:
            during = f" while it processed {worker.current.event.id}" if worker.current else ""
            raise Trouble(f"a worker exited by itself with status {status}{during}{self._log_tail()}")
        self.score.redelivered += worker.current is not None
        self._return_current(worker)
        self._start(index)

    def _unfinished(self) -> str:
        left = [f"{delivery.event.id} (delivery {delivery.number})" for delivery in self._queue.unacknowledged]
        more = [f"and {len(left) - MAX_LISTED} more"] if len(left) > MAX_LISTED else []
        failure = f"; the last failure: {self.score.last_failure}" if self.score.last_failure else ""
        return f"; unfinished: {', '.join(left[:MAX_LISTED] + more)}{failure}{self._log_tail()}"

    def _log_tail(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "".join(f"\n  {line}" for line in lines)
