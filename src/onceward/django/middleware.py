"""`IdempotencyMiddleware` for the setting MIDDLEWARE, sync and async. Put it behind `AuthenticationMiddleware`.

A request is handled if its view is decorated with `@idempotent`, or if its path is listed in `ONCEWARD["HTTP"]`. The
key is claimed before the view runs, and outside of `ATOMIC_REQUESTS`. The response is stored after the view has
committed, unless the view is `transactional`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http.request import RawPostDataException
from django.urls import Resolver404, resolve
from django.utils.module_loading import import_string

from onceward.engine.attempt import SETTLED, UNPROTECTED, Attempt
from onceward.engine.block import enter, leave
from onceward.engine.job import Job
from onceward.errors import (
    AlreadyDone,
    ClaimError,
    ConfigurationError,
    InvalidKey,
    NotAcquired,
    ResultError,
    StoreError,
)
from onceward.http.committed_response import committed_headers
from onceward.http.config import SAFE_METHODS, IdempotencyConfig
from onceward.http.http_settlement import SettlementFailed, settle
from onceward.http.request_context import RequestContext, request_without_key
from onceward.http.semantics import BODY_TOO_LARGE, MAX_LENGTH_DIGITS, NO_LONGER_ALLOWED, RawResponse
from onceward.runtime.threads import run

from .client import aonce, once
from .configuration import SETTING, configuration
from .responses import body_digest, django_response, identity_of, raw_response, set_headers
from .view_options import HANDLED_ATTRIBUTE, MIDDLEWARE, OPTIONS_ATTRIBUTE, ViewOptions

REFUSALS = (NotAcquired, ClaimError, ResultError, StoreError)
"""Errors of a claim that become a response."""

HEADER_HINT = f"Set it in the view, or list the middleware that adds it before {MIDDLEWARE} in MIDDLEWARE"


class DjangoRequest(RequestContext):
    """A request with a key. Its messages name what Django projects use."""

    completion_hint = "to commit rows and response together, decorate the view with @idempotent(transactional=True)"


class IdempotencyMiddleware:
    """Runs each request with an `Idempotency-Key` once, and sends the stored response to its duplicates.

    Name it in `MIDDLEWARE`. Django passes `get_response`, the next middleware or the view.
    """

    sync_capable: ClassVar = True
    async_capable: ClassVar = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)
        self._forget_settings(setting=SETTING)
        setting_changed.connect(self._forget_settings, weak=True)

    def _forget_settings(self, *, setting: str, **_: object) -> None:
        if setting == SETTING:
            self._configs: dict[ViewOptions | None, IdempotencyConfig] = {}

    def __call__(self, request: Any) -> Any:
        """Return the response to a `request`: that of the view, or the stored one of an earlier request."""
        found = self._find(request)
        if found is None:
            return self.get_response(request)
        responding = self._respond(request, *found)
        return responding if self.is_async else run(responding)

    # ── which requests ──────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, request: Any) -> tuple[IdempotencyConfig, bool] | None:
        """Return the settings for this request, and whether it needs a key. None: it is not handled here."""
        if request.method in SAFE_METHODS:
            return None
        options = _view_options(request)
        if options is not None:
            return self._config(options), options.required
        config = self._config(None)
        routes = config.routes.get(request.method)
        required = None if routes is None else routes.required(request.path_info)  # as in URLconfs, without SCRIPT_NAME
        return None if required is None else (config, required)

    def _config(self, options: ViewOptions | None) -> IdempotencyConfig:
        config = self._configs.get(options)
        if config is None:
            given = dict(configuration().http)
            principal = given.pop("principal", user_principal)
            if isinstance(principal, str):
                principal = import_string(principal)
            if options is not None:
                given = {**{name: given[name] for name in given if name not in ROUTES}, **options.choices}
                principal = options.principal or principal
            config = IdempotencyConfig(aonce if self.is_async else once, principal, **given)
            self._configs[options] = config
        return config

    def _prepare(self, request: Any, config: IdempotencyConfig, *, required: bool) -> Job | RawResponse | None:
        """Return the job of a request, the response that refuses it, or None: it has no key, and needs none."""
        principal = config.check_principal(config.principal(request))
        if principal is None:
            return config.no_principal_response()
        key = request.META.get("HTTP_IDEMPOTENCY_KEY")
        if key is None and not required:
            return None
        try:
            parsed = config.parse_key([] if key is None else [key.encode("latin-1", "backslashreplace")])
        except InvalidKey as error:
            return config.error_response(error)
        if _content_length(request) > config.max_body:
            return config.problem_response(BODY_TOO_LARGE)
        try:
            digest = body_digest(request)
        except RawPostDataException as error:
            raise ImproperlyConfigured(
                f"a middleware before {MIDDLEWARE} has read the request body; move it after {MIDDLEWARE}"
            ) from error
        job = config.job(parsed, identity_of(request, principal), digest)
        return config.quota_response(job) or job

    # ── running the view: with a sync view, the flow never suspends ─────────────────────────────────────────────

    async def _respond(self, request: Any, config: IdempotencyConfig, required: bool) -> Any:  # noqa: FBT001 (from `_find`)
        setattr(request, HANDLED_ATTRIBUTE, True)
        prepare: Any = sync_to_async(self._prepare) if self.is_async else self._prepare
        prepared = prepare(request, config, required=required)
        if self.is_async:  # `request.user` may read the session from the database
            prepared = await prepared
        if isinstance(prepared, RawResponse):
            return django_response(prepared)
        if prepared is None:
            with request_without_key(request):
                return await self._call_view(request)
        return await self._run_once(request, config, prepared)

    async def _run_once(self, request: Any, config: IdempotencyConfig, job: Job) -> Any:
        attempt = Attempt(config.engine, job)
        try:
            await enter(attempt)
        except (AlreadyDone, *REFUSALS) as error:
            refuse: Any = sync_to_async(_refusal) if self.is_async else _refusal
            refusal = refuse(config, request, error)
            return django_response(await refusal if self.is_async else refusal)  # `reauthorize=` may use the database
        context = DjangoRequest(config, request, asyncio.get_running_loop() if self.is_async else None)
        attempt.integration = context  # so that the view finds its request by the claim
        try:
            response = await self._call_view(request)
            refusal = await settle(config, attempt, *_to_store(response))
            left = _settlement_error(attempt)
        except BaseException as error:
            await leave(attempt, error)
            raise
        await leave(attempt, left)
        return django_response(config.outcome_response(refusal)) if refusal else _finished(response, config, context)

    async def _call_view(self, request: Any) -> Any:
        response = self.get_response(request)
        return await response if self.is_async else response


ROUTES = ("required", "optional", "methods")


def user_principal(request: Any) -> str | None:
    """Return the primary key of the authenticated user, or None."""
    if not hasattr(request, "user"):
        raise ConfigurationError(
            "the request has no user yet",
            hint=f"put {MIDDLEWARE} after AuthenticationMiddleware, or set ONCEWARD['HTTP']['principal']",
        )
    return str(request.user.pk) if request.user.is_authenticated else None


def _view_options(request: Any) -> ViewOptions | None:
    try:
        match = resolve(request.path_info, urlconf=getattr(request, "urlconf", None))
    except Resolver404:
        return None
    found: ViewOptions | None = getattr(match.func, OPTIONS_ATTRIBUTE, None)
    return found


def _content_length(request: Any) -> int:
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not (length.isascii() and length.isdecimal()):
        return 0
    return int(length) if len(length) <= MAX_LENGTH_DIGITS else sys.maxsize


def _refusal(config: IdempotencyConfig, request: Any, error: Exception) -> RawResponse:
    if not isinstance(error, AlreadyDone):
        return config.error_response(error)  # type: ignore[arg-type]  # one of REFUSALS
    if not config.allows_replay(request):
        return config.problem_response(NO_LONGER_ALLOWED)
    return config.replay_response(error.value)


def _to_store(response: Any) -> tuple[int, Any, list[bytes] | None]:
    """Return status, headers and body. A streaming response is not stored: it is not complete yet."""
    if response.streaming:
        return response.status_code, [], None
    raw = raw_response(response)
    return raw.status, raw.headers, [raw.body]


def _settlement_error(attempt: Attempt) -> SettlementFailed | None:
    return None if attempt.state in (SETTLED, UNPROTECTED) else SettlementFailed("the claim could not be settled")


def _finished(response: Any, config: IdempotencyConfig, context: RequestContext) -> Any:
    """Return the response to send: exactly the committed one, if the view has committed it."""
    if context.committed is not None:
        sent = raw_response(response)
        headers = committed_headers(sent.headers, context.committed, config, HEADER_HINT)
        response.content, response.status_code = context.committed.body, context.committed.status
        for name, _ in sent.headers:
            del response[name.decode("latin-1")]
        set_headers(response, context.committed._replace(headers=headers))
    name, value = config.window
    response[name.decode()] = value.decode()
    return response
