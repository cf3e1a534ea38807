"""Jobs of BigQuery under ids of our own: a job that is sent again is the same job, however its answers get lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from typing import Any, Final, TypeVar

from onceward.errors import OncewardError, StoreBroken, StoreNotSetUp, StoreUnavailable

from .bigquery_driver import driver

T = TypeVar("T")

REQUEST: Final = 60.0  # seconds for one request; a job may take longer
SENDINGS: Final = 4
"""Of one request, if no answer comes: its job has an id, so it is done once."""

TRIES: Final = 12
"""At a transaction in whose way others come: each time, one of those has gone on."""

PAUSE: Final = 0.1  # seconds, doubled each time
LONGEST_PAUSE: Final = 10.0
BETWEEN_LOOKS: Final = 1.0  # seconds at most, at a job that runs

CONFLICTS: Final = ("concurrent update", "concurrent transaction", "Could not serialize")
"""What BigQuery says to the one of two transactions that it aborts."""

BUSY: Final = frozenset({"rateLimitExceeded", "quotaExceeded", "jobRateLimitExceeded", "backendError", "internalError"})
AGAIN: Final = "the load may be repeated under the same id"


class Jobs:
    """Runs jobs for one client, and says what goes wrong in our words."""

    def __init__(self, client: Any, name: str, timeout: float) -> None:
        self._client = client
        self._name = name
        self._bigquery = driver()
        self._timeout = timeout
        self.location: str | None = None
        self.request: dict[str, Any] = {"retry": None, "timeout": min(timeout, REQUEST)}
        """For every request: the client's own repetitions would not know what is safe here."""

    def rows(self, sql: str, **parameters: str) -> list[tuple[Any, ...]]:
        """What a query answers that changes nothing: asked again as often as need be."""

        def ask() -> list[tuple[Any, ...]]:
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

        return self.asked(ask)

    def answers(self, sql: str, values: Sequence[Any], dataset: str) -> list[tuple[Any, ...]]:
        """As `rows`, with `?` for each value, and in a dataset."""
        typed = [self._bigquery.ScalarQueryParameter(None, _type_of(value), value) for value in values]
        config = self._bigquery.QueryJobConfig(
            query_parameters=typed, use_query_cache=False, default_dataset=self._bigquery.DatasetReference(dataset)
        )

        def ask() -> list[tuple[Any, ...]]:
            job = self._client.query(sql, job_config=config, location=self.location, job_retry=None, **self.request)
            return [tuple(row) for row in job.result(job_retry=None, **self.request)]

        return self.asked(ask)

    def run(self, job: str, sql: str, first: int = 0, **parameters: str) -> int:
        """Done: by this call, by an earlier one, or by somebody else's; the answer is the number in the job's id.

        A job that has failed stays failed for ever, so what comes again has the next number. Only what fails by this
        call is an error: what failed before may have been mended since.
        """
        tries = 0
        for number in count(first):
            is_ours, error = self._ended(f"{job}_{number}", sql, parameters)
            if error is None:
                return number
            if not is_ours:
                continue
            if not self._is_passing(error):
                raise self._explained(error, job) from error
            tries += 1
            if tries == TRIES:
                said = f"{self._name}: somebody else was faster, {tries} times ({_first_line(error)})"
                raise StoreUnavailable(said, key=job, hint=AGAIN) from error
            time.sleep(random.uniform(0, min(PAUSE * 2**tries, LONGEST_PAUSE)))  # noqa: S311 (a pause)
        raise AssertionError  # there is no last number

    def _ended(self, job_id: str, sql: str, parameters: dict[str, str]) -> tuple[bool, Exception | None]:
        """Whether this call has begun it, and what it failed with."""
        config = self._config(parameters)

        def send() -> tuple[bool, Any]:
            try:
                sent = self._client.query(
                    sql, job_id=job_id, job_config=config, location=self.location, job_retry=None, **self.request
                )
            except self._bigquery.errors.Conflict:  # it was sent before: look at that one
                return False, self._known(job_id)
            return True, sent

        is_ours, job = self.asked(send, job_id)
        deadline, pause = time.monotonic() + self._timeout, PAUSE / 2
        while not self.asked(lambda: bool(job.done(**self.request)), job_id):
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{self._name}: the job {job_id} is still running", hint=f"{AGAIN}, and then waits for that job"
                )
            time.sleep(pause)
            pause = min(2 * pause, BETWEEN_LOOKS)
        return is_ours, job.exception()

    def _known(self, job_id: str) -> Any:
        errors = self._bigquery.errors
        try:
            return self._client.get_job(job_id, location=self.location, **self.request)
        except errors.NotFound as error:  # it happens for a moment
            raise errors.ServiceUnavailable(f"the job {job_id} is there and cannot be found") from error

    def _config(self, parameters: dict[str, str]) -> Any:
        values = [self._bigquery.ScalarQueryParameter(name, "STRING", value) for name, value in parameters.items()]
        return self._bigquery.QueryJobConfig(query_parameters=values, use_query_cache=False)

    # ── trouble ──

    def asked(self, ask: Callable[[], T], key: str | None = None) -> T:
        """Repeated while no answer comes: whatever is asked here may be asked twice."""
        for sending in range(1, SENDINGS + 1):
            try:
                return ask()
            except self._bigquery.any_error as error:
                if not self._is_away(error) or sending == SENDINGS:
                    raise self._explained(error, key) from error
                time.sleep(random.uniform(0, PAUSE * 2**sending))  # noqa: S311 (so that two do not come again together)
        raise AssertionError  # the last sending was answered or raised

    def _is_passing(self, error: Exception) -> bool:
        return self._is_away(error) or any(one in str(error) for one in CONFLICTS)

    def _is_away(self, error: Exception) -> bool:
        known = self._bigquery
        is_busy = bool(BUSY.intersection(one.get("reason") for one in getattr(error, "errors", ())))
        return is_busy or isinstance(error, (*known.no_answer, known.errors.ServerError, known.errors.RetryError))

    def _explained(self, error: Exception, key: str | None) -> OncewardError:
        errors = self._bigquery.errors
        said = f"{self._name}: {_first_line(error)}"
        if self._is_away(error):
            return StoreUnavailable(said, key=key, hint=AGAIN)
        if isinstance(error, errors.NotFound | errors.Forbidden | errors.Unauthorized | self._bigquery.AuthError):
            hint = "make the dataset; give the account the rights that the page about BigQuery lists"
            return StoreNotSetUp(said, key=key, hint=hint)
        return StoreBroken(said, key=key, hint="look at the message of BigQuery")


def _type_of(value: Any) -> str:
    kinds = ((bool, "BOOL"), (int, "INT64"), (float, "FLOAT64"), (datetime, "TIMESTAMP"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "STRING")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:500]
