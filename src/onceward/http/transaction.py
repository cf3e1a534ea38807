"""Commit the rows of a request, its record and its HTTP response in one database transaction. For any framework.

    begin     find the request's claim, and check that it can be completed in this database
    (the handler writes its rows, and hands over its response)
    record    write the response and the completion of the claim in the same transaction
    (the caller commits)
    confirm   settle the claim: the middleware sends exactly the response that was committed

A crash before the commit leaves neither rows nor response, and the next attempt runs again. A crash after it leaves
both, and the next attempt gets the response.

`ResponseTransaction` has these steps. It never commits: a framework with its own transaction block, as Django, calls
them around it. `RequestTransaction` is the block for sessions and connections that have `commit` and `rollback`.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any, Self

from onceward.engine import settle
from onceward.engine.attempt import SETTLING, UNPROTECTED, Attempt
from onceward.engine.conclude import check_committed
from onceward.errors import ConfigurationError, OutcomeUnknown, StoreError
from onceward.keys.small import is_small
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer
from onceward.protocol.runtime import Runtime
from onceward.runtime.threads import ThreadRuntime, run

from .http_settlement import INVALID_RESPONSE
from .request_context import RequestContext, current_request
from .semantics import RawResponse, decode_response
from .session_guard import SessionGuard
from .statuses import WITHOUT_BODY


class ResponseTransaction:
    """The steps that complete a request's claim inside the caller's transaction."""

    attempt: Attempt | None = None  # None: the request has no key, or no claim
    context: RequestContext | None = None
    request: Any = None  # the ASGI scope or the WSGI environ
    _answer: Answer | None = None
    _response: RawResponse | None = None

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def begin(self) -> None:
        """Find the claim of this request. Raise before any work is done if it cannot be completed in a transaction."""
        self.attempt, self.context, self.request = current_request()
        if self.attempt is not None and self.attempt.state is not UNPROTECTED:
            settle.check_joinable(self.attempt)

    def encode(self, response: RawResponse) -> bytes:
        """Return the stored form of the response. Raise if it cannot be stored: nothing is committed then."""
        if self.context is None:
            return b""
        config, key = self.context.config, self.attempt.key.text if self.attempt else ""
        if config.frees_key(response.status):
            raise ConfigurationError(
                f"a response with status {response.status} is not stored, so a retry would repeat what is committed",
                key=key,
                hint="raise an exception to roll back, or respond with another status",
            )
        if response.body and response.status in WITHOUT_BODY:
            raise ConfigurationError(
                f"a response with status {response.status} has no body, so no server would send this one",
                key=key,
                hint="hand over a response without content, or with another status",
            )
        if len(response.body) > config.max_response:
            raise ConfigurationError(
                f"the response has {len(response.body)} bytes, but max_response is {config.max_response}",
                key=key,
                hint="increase max_response, or respond with the URL of the result",
            )
        data = config.encode_response(response.status, response.headers, response.body)
        if data is None:
            raise ConfigurationError(INVALID_RESPONSE, key=key)
        return data

    async def record(self, response: RawResponse, runtime: Runtime) -> None:
        """Write the response in the caller's transaction. `runtime` is that of the caller: a thread or a loop."""
        data = self.encode(response)
        attempt = self.attempt
        if attempt is None or attempt.state is UNPROTECTED:
            return
        joined = settle.join(attempt, self.connection, runtime)
        record, codec = attempt.record, attempt.job.codec
        if is_small(data):
            encoded = codec.encode(data, record.id, record.cycle)
        else:
            encoded = await runtime.compute(codec.encode, data, record.id, record.cycle)
        self._answer = await settle.write_completion(attempt, joined, settle.completion(attempt, encoded))
        attempt.result = data
        self._response = decode_response(data)

    def confirm(self) -> None:
        """Settle the claim: the caller has committed."""
        attempt, answer = self.attempt, self._answer
        if attempt is None or answer is None:
            return
        attempt.move(SETTLING)
        settle.on_answer(attempt, answer, RecordState.COMPLETED)
        self._publish()

    def roll_back(self) -> None:
        """Forget what was written: the caller has rolled back. The claim is settled as for every other response."""
        if self.attempt is not None:
            self.attempt.joined = self._answer = None

    async def after_failed_commit(self) -> bool:
        """Find out whether a COMMIT that raised has committed, and settle the claim if it has.

        Raise OutcomeUnknown if the store does not answer: the next attempt finds out.
        """
        attempt = self.attempt
        if attempt is None or self._answer is None:
            return False
        try:
            committed = await check_committed(attempt)
        except StoreError as error:
            attempt.abandon()
            raise OutcomeUnknown("it is unknown whether the transaction was committed", key=attempt.key.text) from error
        if committed:
            self._publish()
        else:
            self.roll_back()
        return bool(committed)

    def _publish(self) -> None:
        if self.context is not None:
            self.context.committed = self._response


class RequestTransaction:
    """`with` or `async with` block: it commits rows, record and response together, or rolls back.

    Each framework has a subclass with a `respond` method that builds its own kind of response.
    """

    def __init__(self, session: Any) -> None:
        self._session = session = _actual_session(session)
        self._steps = ResponseTransaction(session)
        self._guard = SessionGuard(session, self._forget_response)
        self._response: RawResponse | None = None
        self._is_async = False
        self._is_undone = False  # the session was rolled back after the response was handed over

    @property
    def request(self) -> Any:
        """The ASGI scope or WSGI environ of the request, in the block."""
        return self._steps.request

    def hand_over(self, response: RawResponse) -> None:
        """Set the response that is committed with the rows, and sent when they are."""
        self._steps.encode(response)  # raises here, where the traceback helps
        self._response = response
        self._guard.response_handed_over()

    def __enter__(self) -> Self:
        run(self._enter(is_async=False))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._leave(error, ThreadRuntime()))

    async def __aenter__(self) -> Self:
        await self._enter(is_async=True)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._leave(error, _loop_runtime())

    # ── the flow of both kinds of sessions: with a sync session, it never suspends ──

    async def _enter(self, *, is_async: bool) -> None:
        check_session(self._session, is_async=is_async)
        self._is_async = is_async
        self._steps.begin()
        self._guard.start()
        try:
            await self._guard.check_begun()
        except BaseException:
            self._guard.stop()
            raise

    async def _leave(self, error: BaseException | None, runtime: Runtime) -> None:
        self._guard.stop()
        if error is not None:
            await self._roll_back()
            return
        try:
            await self._steps.record(self._handed_over(), runtime)
        except BaseException:
            await self._roll_back()
            self._steps.roll_back()
            raise
        try:
            committing = self._session.commit()
            if self._is_async:
                await committing
        except BaseException as failure:
            with suppress(Exception):  # the connection is broken, and `failure` is raised anyway
                await self._roll_back()
            if not await self._was_committed() or not isinstance(failure, Exception):
                raise
        else:
            self._steps.confirm()

    async def _roll_back(self) -> None:
        rolling_back = self._session.rollback()
        if self._is_async:
            await rolling_back

    async def _was_committed(self) -> bool:
        """Return whether the transaction was committed although COMMIT raised."""
        context = self._steps.context
        if context is None:
            return False
        finding_out = self._steps.after_failed_commit()
        return await context.run_async(finding_out) if self._is_async else context.run_blocking(finding_out)

    def _forget_response(self) -> None:
        self._response, self._is_undone = None, True

    def _handed_over(self) -> RawResponse:
        if self._response is None:
            what = (
                "the session was rolled back after tx.respond(…)"
                if self._is_undone
                else "the block ended without a response"
            )
            raise ConfigurationError(
                f"{what}, so nothing was committed",
                key=None if self._steps.attempt is None else self._steps.attempt.key.text,
                hint="end it with `return tx.respond(…)`, or raise an exception to roll back",
            )
        return self._response


def check_session(session: Any, *, is_async: bool) -> None:
    """Raise unless the session can be committed and rolled back in this kind of block."""
    name = type(session).__qualname__
    if not (callable(getattr(session, "commit", None)) and callable(getattr(session, "rollback", None))):
        raise ConfigurationError(
            f"cannot commit a {name}",
            hint="pass a SQLAlchemy session, or a connection that has commit() and rollback()",
        )
    if is_async != iscoroutinefunction(session.commit):
        block = "with" if is_async else "async with"
        raise ConfigurationError(
            f"this {name} needs the other kind of block", hint=f"write `{block} idem.transaction(…)`"
        )


def _actual_session(session: Any) -> Any:
    """Return the session behind a `scoped_session` of SQLAlchemy, such as `db.session` of Flask-SQLAlchemy."""
    return session() if hasattr(session, "registry") and callable(session) else session


def _loop_runtime() -> Runtime:
    from onceward.runtime.aio import AsyncioRuntime

    return AsyncioRuntime()
