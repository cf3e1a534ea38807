"""Run the application for one request with a key, in a task that outlives the client's connection.

When the application has returned, the server's own task settles the claim and sends the response. By then the
application's task and its objects are gone, so they use no memory while the store is busy. If the server has stopped
waiting, the application's task settles the claim itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from onceward.engine.abandon import abandon
from onceward.engine.attempt import NO_RESULT, NOT_BEGUN, OWNED, SETTLED, UNKNOWN, UNPROTECTED, Attempt
from onceward.engine.conclude import settle_raised
from onceward.engine.settle import record_result
from onceward.protocol.outcome import Outcome

from .body import Body
from .config import IdempotencyConfig
from .http_settlement import NoResponse, SettlementFailed
from .response_buffer import App, Message, ResponseBuffer, Scope, Send

_running_tasks: set[asyncio.Task[Any] | None] = set()
"""Strong references to all running tasks. The event loop itself refers to its tasks weakly."""


class RequestRun(ResponseBuffer):
    """Run the application for one request with a key, and settle its claim."""

    started = False  # the application has a task
    _task: asyncio.Task[None] | None = None  # runs the application
    _app_done: asyncio.Future[BaseException | None] | None = None
    _unrecorded: Attempt | None = None  # recording its response was interrupted

    def __init__(self, app: App, scope: Scope, send: Send, config: IdempotencyConfig, body: Message | Body) -> None:
        super().__init__(app, scope, send, config, body)
        self._app_done = self._task = None  # see ResponseBuffer.__init__
        self.started = False

    def start_app(self, attempt: Attempt) -> asyncio.Future[BaseException | None]:
        """Start the application. The future resolves to the exception it raised, or None; then call `finish_app`."""
        self.started = True
        self._attempt = attempt
        self._request = attempt.integration
        loop = asyncio.get_running_loop()
        self._app_done = app_done = loop.create_future()
        self._task = task = loop.create_task(self._run(attempt, app_done))
        _running_tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return app_done

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Handle a task that could not resolve `_app_done`: it was cancelled at its first step."""
        _running_tasks.discard(task)
        self._task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        app_done = self._app_done
        if app_done is not None and not app_done.done():
            app_done.set_result(error)

    async def _run(self, attempt: Attempt, app_done: asyncio.Future[BaseException | None]) -> None:
        """Run the application. If the server has stopped waiting, also settle the claim."""
        task: asyncio.Task[None] | None = self._task
        error: BaseException | None = None
        try:
            if self.finished:  # the key was released
                return
            attempt.__enter__()  # until the end of this task
            attempt.begin()
            await SuspensionHook(self._app(self._scope, self.receive, self.send), self._on_suspend)
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 (`finish_app` settles the claim with it)
            error = raised
        except BaseException as raised:
            try:
                await self.finish_app(attempt, raised)
            finally:
                app_done.cancel()
            raise
        finally:
            _running_tasks.discard(task)
            self._task = None
        if app_done.done():
            await _run_detached(self.finish_app(attempt, error))
        else:
            app_done.set_result(error)
        if task is not None:
            task.remove_done_callback(self._on_task_done)

    async def finish_app(self, attempt: Attempt, error: BaseException | None) -> Outcome[Any] | None:
        """Settle the claim and send the response, after the application returned or raised `error`.

        Return None if the response was sent. The key does not stay locked, whatever interrupts this method.
        """
        try:
            self._app_done = None
            if error is not None and attempt.state in NOT_BEGUN:  # interrupted or cancelled: release the key
                raise error  # noqa: TRY301 (handled below)
            if isinstance(error, Exception):
                self._use_committed()
            try:
                if self._final_message is not None and not isinstance(error, GeneratorExit):  # which forbids awaiting
                    await self._complete_response()
                if error is None:
                    error = self._response_error(attempt)
            except BaseException as raised:
                if attempt.state is not SETTLED:  # the work is done, but may not be recorded
                    self._unrecorded = None if isinstance(raised, GeneratorExit) else attempt
                    raise
                error = raised
            finally:
                self._close()
            return None if error is None else await settle_raised(attempt, error)
        except BaseException as interrupt:
            await abandon([attempt], interrupt)
            raise
        finally:
            attempt.abandon()

    def _response_error(self, attempt: Attempt | None) -> Exception | None:
        """Return the error of an application that returned without a complete, settled response."""
        if not self._settled:
            return NoResponse("the application returned without completing its response")
        if attempt is not None and attempt.state not in (SETTLED, UNPROTECTED):
            return SettlementFailed("the claim could not be settled")
        return None

    async def abandon(self, attempt: Attempt, error: BaseException) -> None:
        """Handle a server that stopped waiting. A running application continues, but nothing more is sent."""
        if attempt.state is OWNED:  # it was not started, and never will be
            self._close()
            await abandon([attempt], error)
            return
        if not self.started:
            self._close()
            return
        self.send_error = ConnectionAbortedError("the server no longer waits for the response")
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the loop is closed, and all its tasks with it
            return
        if (rest := self._remaining_work()) is not None:
            loop.create_task(_run_detached(rest))  # noqa: RUF006 (_run_detached keeps the reference)

    def _remaining_work(self) -> Coroutine[Any, Any, object] | None:
        """Return the work that no other task does: settling a finished application, or recording its response."""
        attempt, app_done = self._attempt, self._app_done
        if attempt is not None and app_done is not None and app_done.done() and not app_done.cancelled():
            return self.finish_app(attempt, app_done.result())
        attempt = self._unrecorded
        if attempt is not None and attempt.state is UNKNOWN and attempt.result is not NO_RESULT:
            attempt.retry_until = math.inf  # the deadline was for a client that has disconnected
            return record_result(attempt, attempt.result)
        return None


class SuspensionHook:
    """Await the application, and call `on_suspend` before each suspension.

    This detects at no cost whether the application has more to do: it needs neither a task nor a loop iteration.
    """

    __slots__ = ("_app", "_on_suspend")

    def __init__(self, app: Awaitable[object], on_suspend: Callable[[], None]) -> None:
        self._app = app
        self._on_suspend = on_suspend

    def __await__(self) -> Generator[Any, Any, None]:
        steps: Any = self._app.__await__()
        error: BaseException | None = None
        while True:
            try:
                wanted = steps.send(None) if error is None else steps.throw(error)
            except StopIteration:
                return
            self._on_suspend()
            try:
                yield wanted
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 (passed on to the application)
                error = thrown
            else:
                error = None


async def _run_detached(work: Coroutine[Any, Any, object]) -> None:
    """Run work that no task awaits, and discard its exception."""
    task = asyncio.current_task()
    _running_tasks.add(task)
    try:
        with contextlib.suppress(Exception):
            await work
    finally:
        _running_tasks.discard(task)
