"""The request that runs now, as the idempotency middleware knows it. Shared by ASGI and WSGI."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from onceward.engine.attempt import Attempt, current
from onceward.errors import ConfigurationError, WrongRuntime
from onceward.runtime.threads import run

from .config import IdempotencyConfig
from .semantics import RawResponse

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class RequestContext:
    """One request with a key. Its attempt refers to it (`Attempt.integration`), so the handler can find it.

    `loop` is the event loop of an ASGI server, None under WSGI. `request` is the ASGI scope or the WSGI environ.
    """

    committed: RawResponse | None = None  # the response that a transaction of the handler has committed
    completion_hint = "to commit rows and response together, use idempotency.transaction(session)"

    def __init__(self, config: IdempotencyConfig, request: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.config = config
        self.request = request
        self._loop = loop

    def refuse_completion(self, key: str) -> NoReturn:
        raise ConfigurationError(
            "the idempotency middleware completes this claim itself, with the HTTP response of the request",
            key=key,
            hint=self.completion_hint,
        )

    def run_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call of the engine from plain code, in whatever thread the framework runs it."""
        if self._loop is None:
            return run(work)
        import asyncio  # imported here: sync programs do not need it

        if _is_on_loop():
            work.close()
            raise WrongRuntime(
                "a sync call would block the event loop", hint="in an `async def` handler, use current_async_claim()"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call of the engine from a coroutine. Under WSGI, the engine blocks, so it gets a thread."""
        import asyncio

        return await (work if self._loop is not None else asyncio.to_thread(run, work))


_without_key: ContextVar[Any] = ContextVar("onceward_request_without_key", default=None)


@contextmanager
def request_without_key(request: Any) -> Iterator[None]:
    """Mark a request that passes through without a key on a route where keys are optional."""
    token = _without_key.set(request)
    try:
        yield
    finally:
        _without_key.reset(token)


def current_request() -> tuple[Attempt | None, RequestContext | None, Any]:
    """Return the attempt, the context and the scope or environ of the request that runs this code.

    Without a key, where that is allowed, there is neither attempt nor context. Raise if no middleware handles the
    request.
    """
    attempt = current()
    while attempt is not None:
        if isinstance(attempt.integration, RequestContext):
            return attempt, attempt.integration, attempt.integration.request
        attempt = attempt.outer
    request = _without_key.get()
    if request is not None:
        return None, None, request
    raise ConfigurationError(
        "no idempotency middleware handles this request, so there is no claim that the transaction could complete",
        hint="call idempotency.protect(app), and declare the route as required or optional",
    )


def _is_on_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
