"""Jobs of BigQuery under ids of our own: a job that is sent again is the same job, however its answers get lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as TookTooLong
from datetime import datetime
from typing import Any, Final, TypeVar

from onceward.errors import MissingExtra, StoreBroken, StoreNotSetUp, StoreUnavailable

T = TypeVar("T")

SENDINGS: Final = 4
"""Of one request, if no answer comes: its job has an id, so it is done once."""

PAUSE: Final = 0.2  # seconds, doubled each time
CONFLICTS: Final = ("concurrent update", "concurrent transaction", "Could not serialize")
"""What BigQuery says to the one of two transactions that it aborts."""

BUSY: Final = frozenset({"rateLimitExceeded", "quotaExceeded", "jobRateLimitExceeded", "backendError", "internalError"})


class Aborted(Exception):
    """Somebody else's transaction was in the way: nothing of this job was done. `is_ours`: begun by this call."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.is_ours = False


class Jobs:
    """Runs jobs for one client, and says what goes wrong in our words."""

    def __init__(self, client: Any, name: str, timeout: float) -> None:
        self._client = client
        self._name = name
        self._bigquery = driver()
        self._timeout = timeout
        self._settings: dict[str, Any] = {"retry": None, "timeout": timeout}

    def rows(self, sql: str, **parameters: str) -> list[tuple[Any, ...]]:
        """What a query answers that changes nothing: asked again as often as need be."""

        def ask() -> list[tuple[Any, ...]]:
            found = self._client.query_and_wait(
                sql,
                job_config=self._config(parameters),
                api_timeout=self._timeout,
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
            job = self._client.query(sql, job_config=config, job_retry=None, **self._settings)
            return [tuple(row) for row in job.result(job_retry=None, **self._settings)]

        return self.asked(ask)

    def run(self, job_id: str, sql: str, **parameters: str) -> None:
        """The job of this id, done: by this call, by an earlier one, or by somebody else's."""
        is_ours = True

        def done() -> None:
            nonlocal is_ours
            try:
                job = self._client.query(
                    sql, job_id=job_id, job_config=self._config(parameters), job_retry=None, **self._settings
                )
            except self._bigquery.errors.Conflict:  # it was sent before: look at that one
                is_ours = False
                job = self._known(job_id)
            job.result(job_retry=None, **self._settings)

        try:
            self.asked(done, job_id)
        except Aborted as error:
            error.is_ours = is_ours
            raise

    def _known(self, job_id: str) -> Any:
        errors = self._bigquery.errors
        try:
            return self._client.get_job(job_id, **self._settings)
        except errors.NotFound as error:  # it happens for a moment
            raise errors.ServiceUnavailable(f"the job {job_id} is there and cannot be found") from error

    def _config(self, parameters: dict[str, str]) -> Any:
        values = [self._bigquery.ScalarQueryParameter(name, "STRING", value) for name, value in parameters.items()]
        return self._bigquery.QueryJobConfig(query_parameters=values, use_query_cache=False)

    def asked(self, ask: Callable[[], T], key: str | None = None) -> T:
        """Repeated while no answer comes: whatever is asked here may be asked twice."""
        errors = self._bigquery.errors
        for sending in range(1, SENDINGS + 1):
            try:
                return ask()
            except (errors.GoogleAPIError, *self._bigquery.no_answer, TookTooLong) as error:
                if not self._is_away(error) or sending == SENDINGS:
                    raise self._explained(error, key) from error
                time.sleep(random.uniform(0, PAUSE * 2**sending))  # noqa: S311 (so that two do not come again together)
        raise AssertionError  # the last sending was answered or raised

    def _is_away(self, error: Exception) -> bool:
        errors = self._bigquery.errors
        is_busy = bool(BUSY.intersection(one.get("reason") for one in getattr(error, "errors", ())))
        return is_busy or not isinstance(error, errors.GoogleAPIError) or isinstance(error, errors.ServerError)

    def _explained(self, error: Exception, key: str | None) -> Exception:
        errors = self._bigquery.errors
        said = str(error).partition("\n")[0]
        if any(one in said for one in CONFLICTS):
            return Aborted(said)
        if self._is_away(error):
            hint = "the load may be repeated under the same id"
            return StoreUnavailable(f"{self._name}: {said}", key=key, hint=hint)
        if isinstance(error, errors.NotFound | errors.Forbidden | errors.Unauthorized):
            return StoreNotSetUp(
                f"{self._name}: {said}",
                key=key,
                hint="make the dataset; give the rights that the page about BigQuery lists",
            )
        return StoreBroken(f"{self._name}: {said}", key=key, hint="look at the message of BigQuery")


def _type_of(value: Any) -> str:
    kinds = ((bool, "BOOL"), (int, "INT64"), (float, "FLOAT64"), (datetime, "TIMESTAMP"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "STRING")


class Driver:
    """What we use of google-cloud-bigquery."""

    def __init__(self) -> None:
        import requests
        from google.api_core import exceptions
        from google.auth import credentials
        from google.auth.exceptions import TransportError
        from google.cloud import bigquery

        self.Client = bigquery.Client
        self.DatasetReference = bigquery.DatasetReference.from_string
        self.QueryJobConfig = bigquery.QueryJobConfig
        self.ScalarQueryParameter = bigquery.ScalarQueryParameter
        self.SchemaField = bigquery.SchemaField
        self.Table = bigquery.Table
        self.Anonymous = credentials.AnonymousCredentials
        self.errors = exceptions
        self.no_answer = (requests.exceptions.RequestException, TransportError, ConnectionError)


def driver() -> Any:
    try:
        return Driver()
    except ModuleNotFoundError as error:
        raise MissingExtra("google-cloud-bigquery is not installed", hint="install onceward[bigquery]") from error
