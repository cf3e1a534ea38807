"""`@idempotent`: which views use idempotency keys, and how. The middleware does the work."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from inspect import iscoroutine, iscoroutinefunction
from typing import Any, TypeVar, Unpack

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from onceward.errors import ConfigurationError
from onceward.http.config import SAFE_METHODS, RouteOptions
from onceward.http.transaction import ResponseTransaction
from onceward.runtime.threads import ThreadRuntime, run

from .atomic import MARKED
from .configuration import configuration
from .responses import raw_response

logger = logging.getLogger("onceward.http")

View = TypeVar("View", bound=Callable[..., Any])

OPTIONS_ATTRIBUTE = "onceward_options"
HANDLED_ATTRIBUTE = "onceward_handled"
FIRST_ERROR_STATUS = 400
"""A view that responds with an error may roll back. Other responses promise that the rows are committed."""

MIDDLEWARE = "onceward.django.IdempotencyMiddleware"


class ViewOptions:
    """The options of a view: those of `@idempotent`."""

    def __init__(
        self, *, required: bool, transactional: bool, principal: Callable[[Any], Any] | None, choices: RouteOptions
    ) -> None:
        self.required = required
        self.transactional = transactional
        self.principal = principal
        self.choices = choices


def idempotent(
    *,
    required: bool = True,
    transactional: bool = False,
    principal: Callable[[Any], Any] | None = None,
    **choices: Unpack[RouteOptions],
) -> Callable[[View], View]:
    """Return a decorator that runs the view once per `Idempotency-Key`. For a class, use `method_decorator`.

    `GET`, `HEAD`, `OPTIONS` and `TRACE` need no key.

    Args:
        required: Whether requests without a key are refused with 400. If False, they pass through.
        transactional: Whether to commit the rows that the view writes and its stored response in one transaction. A
            response that frees the key, such as 503, rolls the rows back.
        principal: `principal(request)` returns the owner of the key as a str; None: the request is not authenticated.
            By default it is the primary key of `request.user`.
        choices: Options of `onceward.http.wsgi.IdempotencyMiddleware`, for this view.

    Raises:
        ConfigurationError: `transactional=True` on an async view, or the middleware is missing in `MIDDLEWARE`.
    """

    def decorate(view: View) -> View:
        is_async = iscoroutinefunction(view)
        if transactional and is_async:
            raise ConfigurationError(
                f"{view.__name__} is async, but Django has no async transactions",
                hint="write a sync view, or remove transactional=True",
            )

        @functools.wraps(view)
        def call(request: Any, *args: Any, **kwargs: Any) -> Any:
            _require_middleware(request)
            if not transactional or request.method in SAFE_METHODS:
                return view(request, *args, **kwargs)
            return _commit_together(functools.partial(view, request, *args, **kwargs))

        @functools.wraps(view)
        async def acall(request: Any, *args: Any, **kwargs: Any) -> Any:
            _require_middleware(request)
            return await view(request, *args, **kwargs)

        decorated: Any = acall if is_async else call
        options = ViewOptions(required=required, transactional=transactional, principal=principal, choices=choices)
        setattr(decorated, OPTIONS_ATTRIBUTE, options)
        if transactional:  # the view commits itself: ATOMIC_REQUESTS would commit later
            decorated = transaction.non_atomic_requests(using=configuration().database)(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def _require_middleware(request: Any) -> None:
    """Raise if the middleware does not handle this request: the view would run without protection."""
    request = getattr(request, "_request", request)  # a request of Django REST framework wraps Django's
    if request.method not in SAFE_METHODS and not getattr(request, HANDLED_ATTRIBUTE, False):
        raise ImproperlyConfigured(
            f"{request.path} has @idempotent, but {MIDDLEWARE} did not handle the request; add it to "
            "MIDDLEWARE, after AuthenticationMiddleware. If a view cannot be found by its URL, as in "
            "django-ninja, also list its path in ONCEWARD['HTTP']['required']"
        )


def _commit_together(view: Callable[[], Any]) -> Any:
    """Call the view and commit its rows, the record and the response in one transaction."""
    alias = configuration().database
    steps = ResponseTransaction(connections[alias])
    steps.begin()
    recorded = False
    response: Any = None
    block: Any = transaction.atomic(using=alias, durable=True)
    try:
        with block:
            response = _complete_response(view())
            _check_rollback(response, alias)
            context = steps.context
            if context is not None and context.config.frees_key(response.status_code):
                transaction.set_rollback(True, using=alias)
            if not transaction.get_rollback(using=alias):
                run(steps.record(raw_response(response), ThreadRuntime()))
                recorded = True
    except Exception:
        if not recorded or steps.context is None or not steps.context.run_blocking(steps.after_failed_commit()):
            steps.roll_back()
            raise
        logger.exception("An error was raised after the commit, for example by an on_commit callback")
        return response
    if recorded:
        steps.confirm()
    return response


def _check_rollback(response: Any, alias: str) -> None:
    """Raise if the response reports success, and Django is going to undo the rows."""
    if transaction.get_rollback(using=alias) and response.status_code < FIRST_ERROR_STATUS:
        raise transaction.TransactionManagementError(MARKED)


def _complete_response(response: Any) -> Any:
    """Return the response of a view, rendered. Raise if it has no body that can be stored in the transaction."""
    if iscoroutine(response):
        response.close()
        raise ConfigurationError(
            "the view is async, and Django has no async transactions",
            hint="write a sync view, or remove transactional=True",
        )
    if response.streaming:  # not closed here: that would end the request, and Django would close the connection
        raise ConfigurationError(
            "a streaming response cannot be committed with the rows of the view, which are rolled back",
            hint="return a response that is complete, or remove transactional=True",
        )
    if hasattr(response, "render") and callable(response.render):
        response = response.render()
    return response
