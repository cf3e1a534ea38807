"""Run BigQuery jobs under our own ids: a job that is sent again after a lost reply is the same job."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import datetime
from itertools import count
from typing import Any, Final, TypeVar

from google.api_core import exceptions as errors
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import bigquery
from requests.exceptions import RequestException

from onceward.errors import OncewardError, StoreBroken, StoreNotSetUp, StoreUnavailable

T = TypeVar("T")

REQUEST_TIMEOUT: Final = 60.0  # seconds for one request; a job may take longer
MAX_SENDS: Final = 4
"""Attempts to send a request without a reply. Its job has an id, so it runs once."""

MAX_CONFLICTS: Final = 12
"""Attempts to run a transaction that conflicts with others. Each time, one of the others has committed."""

PAUSE: Final = 0.1  # seconds, doubled each time
MAX_PAUSE: Final = 10.0
MAX_POLL_INTERVAL: Final = 1.0  # seconds at most between two polls of a running job

CONFLICTS: Final = ("concurrent update", "concurrent transaction", "Could not serialize")
"""BigQuery's messages for a transaction that it aborts because of a conflict."""

BUSY: Final = frozenset({"rateLimitExceeded", "quotaExceeded", "jobRateLimitExceeded", "backendError", "internalError"})
REPEAT_HINT: Final = "the load may be repeated under the same id"


NO_ANSWER: Final = (RequestException, TransportError, ConnectionError, FutureTimeoutError)
UNAVAILABLE: Final = (*NO_ANSWER, errors.ServerError, errors.RetryError)
ANY_ERROR: Final = (errors.GoogleAPIError, GoogleAuthError, *NO_ANSWER)


class Jobs:
    """Runs jobs for one client, and translates BigQuery's errors."""

    def __init__(self, client: Any, name: str, timeout: float) -> None:
        self._client = client
        self._name = name
        self._timeout = timeout
        self.location: str | None = None
        self.request: dict[str, Any] = {"retry": None, "timeout": min(timeout, REQUEST_TIMEOUT)}
        """Options of every request. The client's own retries are off: it does not know what is safe to repeat."""

    def rows(self, sql: str, **parameters: str) -> list[tuple[Any, ...]]:
        """Return the rows of a read-only query. It is retried if no reply arrives."""

        def send() -> list[tuple[Any, ...]]:
            found = self._client.query_and_wait(
                sql,
                job_config=self._config(parameters),
                location=self.location,
                api_timeout=self.request["timeout"],
                wait_timeout=self._timeout,
                retry=None,
                job_retry=None,
            )
            return [tuple(row) for row in found]

        return self.retry_request(send)

    def query(self, sql: str, values: Sequence[Any], dataset: str) -> list[tuple[Any, ...]]:
        """Like `rows`, with `?` for each value, and a default dataset."""
        typed = [bigquery.ScalarQueryParameter(None, _type_of(value), value) for value in values]
        config = bigquery.QueryJobConfig(
            query_parameters=typed,
            use_query_cache=False,
            default_dataset=bigquery.DatasetReference.from_string(dataset),
        )

        def send() -> list[tuple[Any, ...]]:
            job = self._client.query(sql, job_config=config, location=self.location, job_retry=None, **self.request)
            return [tuple(row) for row in job.result(job_retry=None, **self.request)]

        return self.retry_request(send)

    def run(self, job: str, sql: str, first: int = 0, **parameters: str) -> int:
        """Run a job, unless this or another process has run it already. Return the number in the job's id.

        A failed job stays failed, so the next attempt uses the next number. Only a job that this call started can
        raise: the cause of an earlier failure may have been fixed since.
        """
        conflicts = 0
        for number in count(first):
            started_here, error = self._finish(f"{job}_{number}", sql, parameters)
            if error is None:
                return number
            if not started_here:
                continue
            if not self._is_retryable(error):
                raise self._translate(error, job) from error
            conflicts += 1
            if conflicts == MAX_CONFLICTS:
                message = f"{self._name}: conflicts with other loads, {conflicts} times ({_first_line(error)})"
                raise StoreUnavailable(message, key=job, hint=REPEAT_HINT) from error
            time.sleep(random.uniform(0, min(PAUSE * 2**conflicts, MAX_PAUSE)))  # noqa: S311 (jitter)
        raise AssertionError  # `count` never ends

    def _finish(self, job_id: str, sql: str, parameters: dict[str, str]) -> tuple[bool, Exception | None]:
        """Wait for the job. Return whether this call started it, and its error."""
        config = self._config(parameters)

        def send() -> tuple[bool, Any]:
            try:
                sent = self._client.query(
                    sql, job_id=job_id, job_config=config, location=self.location, job_retry=None, **self.request
                )
            except errors.Conflict:  # the job was sent before: wait for that job
                return False, self._existing_job(job_id)
            return True, sent

        started_here, job = self.retry_request(send, job_id)
        deadline, pause = time.monotonic() + self._timeout, PAUSE / 2
        while not self.retry_request(lambda: bool(job.done(**self.request)), job_id):
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{self._name}: the job {job_id} is still running",
                    hint=f"{REPEAT_HINT}, and then waits for that job",
                )
            time.sleep(pause)
            pause = min(2 * pause, MAX_POLL_INTERVAL)
        return started_here, job.exception()

    def _existing_job(self, job_id: str) -> Any:
        try:
            return self._client.get_job(job_id, location=self.location, **self.request)
        except errors.NotFound as error:  # can happen for a moment after the conflict
            message = f"the job {job_id} exists, but cannot be found yet"
            raise errors.ServiceUnavailable(message) from error  # type: ignore[no-untyped-call]

    def _config(self, parameters: dict[str, str]) -> Any:
        values = [bigquery.ScalarQueryParameter(name, "STRING", value) for name, value in parameters.items()]
        return bigquery.QueryJobConfig(query_parameters=values, use_query_cache=False)

    # ── errors ──

    def retry_request(self, send: Callable[[], T], key: str | None = None) -> T:
        """Send a request, and repeat it while no reply arrives: every request here is safe to repeat."""
        for attempt in range(1, MAX_SENDS + 1):
            try:
                return send()
            except ANY_ERROR as error:
                if not self._is_unavailable(error) or attempt == MAX_SENDS:
                    raise self._translate(error, key) from error
                time.sleep(random.uniform(0, PAUSE * 2**attempt))  # noqa: S311 (jitter)
        raise AssertionError  # the last attempt returned or raised

    def _is_retryable(self, error: Exception) -> bool:
        return self._is_unavailable(error) or any(one in str(error) for one in CONFLICTS)

    def _is_unavailable(self, error: Exception) -> bool:
        is_busy = bool(BUSY.intersection(one.get("reason") for one in getattr(error, "errors", ())))
        return is_busy or isinstance(error, UNAVAILABLE)

    def _translate(self, error: Exception, key: str | None) -> OncewardError:
        message = f"{self._name}: {_first_line(error)}"
        if self._is_unavailable(error):
            return StoreUnavailable(message, key=key, hint=REPEAT_HINT)
        if isinstance(error, errors.NotFound | errors.Forbidden | errors.Unauthorized | GoogleAuthError):
            hint = "create the dataset; grant the account the permissions listed in the BigQuery guide"
            return StoreNotSetUp(message, key=key, hint=hint)
        return StoreBroken(message, key=key, hint="see BigQuery's message")


def _type_of(value: Any) -> str:
    kinds = ((bool, "BOOL"), (int, "INT64"), (float, "FLOAT64"), (datetime, "TIMESTAMP"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "STRING")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:500]
