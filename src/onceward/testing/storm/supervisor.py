"""The supervisor: hands deliveries to worker processes, kills and pauses these at random, and starts new ones."""

from __future__ import annotations

import random
import selectors
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from . import pipes as wire
from .backlog import Backlog
from .contract import ACKNOWLEDGED, Answer, Setting
from .errors import Trouble
from .faults import Strikes
from .plan import Kill, Plan
from .process import FAREWELL, ForkServer, Worker
from .score import Score
from .traffic import Delivery

AGAIN = (0.05, 0.25)  # seconds until a delivery that was not acknowledged comes back ...
SLOWER = 3  # ... and up to so many times that, if it did so before: what a dead worker holds, it holds for a while
LEASES = (1.0, 2.0)  # seconds: how long a killed worker keeps the key that it held
STARTING = 60.0  # seconds for imports and connections
LOOK = 0.05  # seconds between looks at the scoreboard
NAMED = 5  # deliveries in a sentence
TAIL = 20  # lines of the log


class Supervisor:
    """Runs the backlog down. `score` has what the workers said, and the kills and pauses."""

    def __init__(self, system: str, plan: Plan, setting: Setting, backlog: Backlog) -> None:
        self.score = Score()
        self._system = system
        self._plan = plan
        self._setting = setting
        self._backlog = backlog
        self._strikes = Strikes(plan)
        self._dice = random.Random(f"{plan.seed} crew")
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._returned: Counter[int] = Counter()
        self._orphans: set[str] = set()  # events that a worker had in hand when it was killed or paused
        self._log_path = Path(setting.folder) / "workers.log"
        self._started = self._last = time.monotonic()

    def run(self, show: Callable[[Score], None]) -> None:
        """Until every delivery is acknowledged, and everybody who was paused has gone on.

        Raises `Trouble`; leaves no process behind in any case.
        """
        with self._log_path.open("ab") as log, ForkServer(self._system, log) as self._nursery:
            try:
                self._assemble(show)
                while not self._backlog.empty or any(worker.is_busy for worker in self._workers):
                    self._step()
                    show(self.score)
                self._dismiss()
            finally:
                for worker in self._workers:
                    worker.kill()
                    worker.bury()
                self._selector.close()

    def _assemble(self, show: Callable[[Score], None]) -> None:
        """The time begins when all are there: starting may take longer than the run."""
        if not self._nursery.open(STARTING):
            raise Trouble(f"{self._system} cannot be imported in a process of its own{self._tail()}")
        for place in range(self._plan.workers):
            self._start(place)
        while not all(worker.ready for worker in self._workers):
            self._listen(LOOK)
            show(self.score)
            if time.monotonic() - self._last > STARTING:
                raise Trouble(f"the workers have not started for {STARTING:g} s{self._tail()}")
        self._started = self._last = time.monotonic()

    def _step(self) -> None:
        now = time.monotonic()
        self._tell_time(now)
        self._wake(now)
        self._hand_out(now)
        self._strike(now)
        self._listen(self._until_next(now))
        if now - self._last > self._plan.patience:
            raise Trouble(f"no delivery was acknowledged for {self._plan.patience:g} s{self._who_is_left()}")

    def _hand_out(self, now: float) -> None:
        for worker in self._workers:
            self._strikes.advance(self._begun, now)
            if worker.is_free and (delivery := self._next_for(now)) is not None:
                worker.hand(delivery)
                self.score.delivered += 1

    def _next_for(self, now: float) -> Delivery | None:
        """What the paused have in hand does not wait: others have to be at it before these come back."""
        if not self._holds_back(now):
            return self._backlog.take(now)
        paused = {worker.in_hand.number for worker in self._workers if worker.is_late and worker.in_hand is not None}
        return self._backlog.take_again(now, paused)

    def _listen(self, patience: float) -> None:
        for key, _ in self._selector.select(patience):
            self._hear(key.data)

    def _tell_time(self, now: float) -> None:
        self.score.seconds = now - self._started
        parts = [0.0]
        if self._plan.size:
            parts.append(self.score.acknowledged / self._plan.size)
        if self._plan.seconds is not None:
            parts.append(self.score.seconds / max(self._plan.seconds, LOOK))
            if self.score.seconds >= self._plan.seconds:
                self._backlog.stop()
        self.score.progress = min(1.0, max(parts))

    def _until_next(self, now: float) -> float:
        wakes = [worker.wakes_at for worker in self._workers if worker.wakes_at is not None]
        return min([LOOK, *(at - now for at in self._strikes.times + wakes if at > now)])

    def _start(self, place: int) -> None:
        lease = round(self._dice.uniform(*LEASES), 2)
        worker = self._nursery.start(replace(self._setting, lease=lease))
        self._workers[place : place + 1] = [worker]
        self._selector.register(worker.outbox, selectors.EVENT_READ, place)

    @property
    def _begun(self) -> float:
        """How much of the run is over once the next delivery is handed out; of a time, how much is over."""
        if self._plan.seconds is not None or not self._plan.size:
            return self.score.progress
        return (self.score.acknowledged + self._in_hand + 1) / self._plan.size

    @property
    def _in_hand(self) -> int:
        """Deliveries that somebody is at; of those that were paused, also if others are at them, too."""
        held = [worker.in_hand for worker in self._workers if worker.in_hand is not None]
        return len({delivery.number for delivery in held if self._backlog.is_out(delivery)})

    def _holds_back(self, now: float) -> bool:
        """If deliveries are counted, all strikes fall into the run: deliveries wait for those that have to."""
        if self._plan.seconds is not None or not self._plan.size:
            return False
        left = self._plan.size - self.score.acknowledged - self._in_hand
        return self._strikes.hold_back(now, self._workers, left)

    def _strike(self, now: float) -> None:
        for strike, victim in self._strikes.hits(now, self._workers):
            if isinstance(strike, Kill):
                victim.kill()
                self.score.killed += 1
            else:
                victim.pause(now, strike.beyond)
                self.score.paused += 1
                self._give_up(victim)

    def _give_up(self, worker: Worker) -> None:
        """Nobody hears of it: what it has in hand is for others, now."""
        if worker.in_hand is not None:
            self._orphans.add(worker.in_hand.event.id)
            self._return(worker.in_hand)

    def _wake(self, now: float) -> None:
        for worker in self._workers:
            if worker.is_over(now):
                worker.wake()

    def _hear(self, place: int) -> None:
        worker = self._workers[place]
        answers = worker.hear()
        if answers is None:
            self._replace(place)
            return
        if worker.killed:
            return  # its acknowledgement is lost: the delivery is still in its hand, and comes back
        for answered in answers:
            if answered.number == wire.READY:
                worker.ready = True
                continue
            delivery, worker.in_hand = worker.in_hand, None
            if delivery is None or delivery.number != answered.number:
                raise Trouble(f"a worker answered for delivery {answered.number}, which it was not given")
            self._settle(delivery, answered.answer, late=worker.is_late)
            worker.is_late = False

    def _settle(self, delivery: Delivery, answer: Answer, *, late: bool) -> None:
        again = not self._backlog.is_out(delivery)
        self.score.count(answer, orphaned=delivery.event.id in self._orphans, again=again)
        if answer.said in ACKNOWLEDGED:
            self._backlog.acknowledge(delivery)
            self._last = time.monotonic()
        elif not late:  # else it is back already
            self._return(delivery)

    def _return(self, delivery: Delivery) -> None:
        self._returned[delivery.number] += 1
        delay = self._dice.uniform(*AGAIN) * min(self._returned[delivery.number], SLOWER)
        self._backlog.put_back(delivery, time.monotonic() + delay)

    def _replace(self, place: int) -> None:
        """A worker is gone. What it had in hand was not acknowledged, so it comes back."""
        worker = self._workers[place]
        self._selector.unregister(worker.outbox)
        status = worker.bury()
        if not worker.killed:
            holding = f" while it had {worker.in_hand.event.id}" if worker.in_hand else ""
            raise Trouble(f"a worker ended by itself, with status {status}{holding}{self._tail()}")
        self.score.redelivered += worker.in_hand is not None
        self._give_up(worker)
        self._start(place)

    def _dismiss(self) -> None:
        """The last acknowledgement is there: workers may end in peace, and say so if they cannot."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.bury(FAREWELL)

    def _who_is_left(self) -> str:
        left = [f"{delivery.event.id} (delivery {delivery.number})" for delivery in self._backlog.unacknowledged]
        more = [f"and {len(left) - NAMED} more"] if len(left) > NAMED else []
        said = f"; the last one that failed: {self.score.complaint}" if self.score.complaint else ""
        return f"; left: {', '.join(left[:NAMED] + more)}{said}{self._tail()}"

    def _tail(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()[-TAIL:]
        return "".join(f"\n  {line}" for line in lines)
