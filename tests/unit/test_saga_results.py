"""An encrypted step result belongs to one cycle of one saga."""

from __future__ import annotations

import pytest

from onceward.errors import ResultCorrupt
from onceward.results.codec import Codec
from onceward.results.encryption import AesGcm
from onceward.results.result_type import ResultType
from onceward.sagas.journal import Journal, JournalEntry, StepProgress
from onceward.sagas.step_context import StepResults, associated_data


@pytest.mark.finding("N42")
def test_an_encrypted_result_of_another_cycle_step_or_record_is_refused() -> None:
    """Otherwise a person with access to the store could put last year's result into this year's saga."""
    codec = Codec(ResultType(str), cipher=AesGcm({"k": b"0" * 32}, current="k"))
    data = codec.encode("paid", associated_data(b"id", 1, "charge")).data

    def read(cycle: int, name: str = "charge", key_id: bytes = b"id") -> object:
        entries = (JournalEntry(name, StepProgress.DONE, token=1, result=data),)
        return StepResults(Journal(cycle, entries=entries), {name: codec}, key_id, "order:1")[name]

    assert read(1) == "paid"
    for cycle, name, key_id in ((2, "charge", b"id"), (1, "refund", b"id"), (1, "charge", b"other")):
        with pytest.raises(ResultCorrupt, match="another record"):
            read(cycle, name, key_id)
