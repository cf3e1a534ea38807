"""One request as it is worked on: the application has a task of its own, and outlives whoever waits for it.

When it has returned, whoever waits for it, the server's own task, settles its claim and sends its answer: by then
nothing of the application is left, its task included, to lie about while the store is asked. If nobody waits any more,
the task does that itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Coroutine
from typing import Any

from onceward.engine.attempt import NO_RESULT, Attempt, current
from onceward.engine.ending import after_error
from onceward.engine.interrupted import recover
from onceward.protocol.outcome import Outcome
from onceward.runtime.aio import shielded

from .body import Body
from .config import IdempotencyConfig
from .http_settlement import NoAnswer, Unsettled
from .response_buffer import App, Message, ResponseBuffer, Scope, Send
from .suspension_hook import SuspensionHook

_apart: set[asyncio.Task[Any] | None] = set()
"""What is being worked on, whether anybody waits for it or not. A loop itself refers to its tasks weakly."""


class RequestRun(ResponseBuffer):
    """The work on a request with a key: begun, ended, or abandoned by the server."""

    started = False  # the work has a task of its own
    _task: asyncio.Task[None] | None = None  # in which the application works
    _returned: asyncio.Future[BaseException | None] | None = None
    _unrecorded: Attempt | None = None  # whoever recorded its answer was torn away from that

    def __init__(self, app: App, scope: Scope, send: Send, contract: IdempotencyConfig, body: Message | Body) -> None:
        super().__init__(app, scope, send, contract, body)
        self._returned = self._task = None  # as there
        self.started = False

    def begin(self, attempt: Attempt) -> asyncio.Future[BaseException | None]:
        """Start the application. What it raised comes when it has returned, and `end` is then to be called."""
        self.started = True
        self._attempt = attempt
        loop = asyncio.get_running_loop()
        self._returned = returned = loop.create_future()
        self._task = task = loop.create_task(self._run(attempt, returned))
        _apart.add(task)
        task.add_done_callback(self._torn)
        return returned

    def _torn(self, task: asyncio.Task[None]) -> None:
        """It could not say itself that it is over: cancelled before its first step, or torn open at its last."""
        _apart.discard(task)
        self._task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        attempt, returned = self._attempt, self._returned
        if returned is not None and not returned.done():
            returned.set_result(error)
        elif attempt is not None and not attempt.over:
            task.get_loop().create_task(_alone(self.end(attempt, error)))

    async def _run(self, attempt: Attempt, returned: asyncio.Future[BaseException | None]) -> None:
        """The application. If nobody waits for it any more, it is also ended here."""
        task: asyncio.Task[None] | None = self._task
        error: BaseException | None = None
        try:
            if self.over:  # the key was given back
                return
            attempt.enter_task()
            attempt.begin()
            await SuspensionHook(self._app(self._scope, self.receive, self.send), self._look)
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 (ends the claim, and is raised there)
            error = raised
        except BaseException as raised:
            try:
                await self.end(attempt, raised)
            finally:
                returned.cancel()
            raise
        finally:
            _apart.discard(task)
            self._task = None
        if returned.done():
            await _alone(self.end(attempt, error))
        else:
            returned.set_result(error)
        if task is not None:
            task.remove_done_callback(self._torn)

    async def end(self, attempt: Attempt, error: BaseException | None) -> Outcome[Any] | None:
        """The application has returned, or raised this: settle the claim, and send. None: that was done.

        Whatever interrupts it, the key does not stay locked.
        """
        try:
            self._returned = None
            if error is not None and not attempt.begun:  # by a signal, or cancelled: then the key is given back
                raise error  # noqa: TRY301 (as if it came here)
            try:
                if self._last is not None and not isinstance(error, GeneratorExit):  # then nothing can be waited for
                    await self._rest()
                if error is None:
                    error = self._lack(attempt)
            except BaseException as raised:
                if attempt.settled is None:  # the work is done, and its record may not be there
                    self._unrecorded = None if isinstance(raised, GeneratorExit) else attempt
                    raise
                error = raised
            finally:
                self._leave()
            return None if error is None else await after_error(attempt, error)
        except BaseException as torn:
            await recover(attempt.engine, [attempt], torn)
            raise
        finally:
            if not attempt.over:
                attempt.abandon()

    def _lack(self, attempt: Attempt | None) -> Exception | None:
        """What is wrong with an application that has returned."""
        if not self._settled:
            return NoAnswer("the application returned without completing its answer")
        if attempt is not None and attempt.unconfirmed:
            return Unsettled("the claim could not be settled")
        return None

    def start(self, work: Coroutine[Any, Any, Outcome[Any]]) -> Awaitable[Outcome[Any]]:
        """Work without a claim, in a task of its own; and what waits for it."""
        self.started = True
        task = asyncio.get_running_loop().create_task(work)
        _apart.add(task)
        task.add_done_callback(_apart.discard)
        return shielded(task)

    async def give_up(self, attempt: Attempt, error: BaseException) -> None:
        """Whoever waits was torn away, by a signal or a cancellation, before the application began: it will not."""
        self._leave()
        await recover(attempt.engine, [attempt], error)
        attempt.abandon()

    def abandon(self) -> None:
        """Nobody waits any more. What was not begun will not be; what was goes on, and has nobody to send to."""
        if not self.started:
            self._leave()
            return
        self.trouble = ConnectionAbortedError("nobody waits for the answer any more")
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # it is gone, and with it everything that was under way
            return
        if (rest := self._left_to_do()) is not None:
            loop.create_task(_alone(rest))  # noqa: RUF006 (it sees to that itself)

    def _left_to_do(self) -> Coroutine[Any, Any, object] | None:
        """If nobody else does it: the application had just returned, or its answer was just being recorded."""
        attempt, returned = self._attempt, self._returned
        if attempt is not None and returned is not None and returned.done() and not returned.cancelled():
            return self.end(attempt, returned.result())
        attempt = self._unrecorded
        if attempt is not None and attempt.settled is None and attempt.result is not NO_RESULT:
            attempt.patience = math.inf  # it was to hurry for the sake of whoever has left
            return attempt.record_result(attempt.result)
        return None

    async def __call__(self) -> None:
        """What the job calls where there is no claim: the store is down, and the policy says run, or the test mode."""
        attempt = current()
        self._attempt = attempt = attempt if attempt is not None and attempt.job is self.job else None
        try:
            try:
                await SuspensionHook(self._app(self._scope, self.receive, self.send), self._look)
            except BaseException as error:
                if self._last is not None and not isinstance(error, GeneratorExit):
                    await self._rest()
                raise
            if self._last is not None:
                await self._rest()
        finally:
            self._leave()
        lack = self._lack(attempt)
        if lack is not None:
            raise lack


async def _alone(work: Coroutine[Any, Any, object]) -> None:
    """Nobody waits for it: what it raises has nobody to be told."""
    task = asyncio.current_task()
    _apart.add(task)
    try:
        with contextlib.suppress(Exception):
            await work
    finally:
        _apart.discard(task)
