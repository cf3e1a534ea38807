"""The calibration table: confidence against the share of pairs that are true."""

from __future__ import annotations

import pytest

from bench.people_calibration import Bin, bins, compared_pairs
from bench.people_data import Maker


def test_pairs_are_put_into_bins() -> None:
    found = bins([(0.2, False), (0.25, True), (0.95, True), (1.0, True)])
    assert found[0]._replace(predicted=0) == Bin(0.1, 0.3, 2, 0, 0.5)
    assert found[0].predicted == pytest.approx(0.225)
    assert found[1:] == [Bin(0.9, 0.99, 1, 0.95, 1.0), Bin(0.99, 1.0, 1, 1.0, 1.0)]


@pytest.mark.finding("N65")
def test_the_confidence_of_generated_pairs_is_roughly_their_share_of_true_ones() -> None:
    found = {one.low: one for one in bins(compared_pairs(Maker(1).records(600)))}
    assert found[0.99].observed > 0.98
    assert found[0.0].observed < 0.05
    pairs = sum(one.pairs for one in found.values())
    error = sum(abs(one.predicted - one.observed) * one.pairs for one in found.values()) / pairs
    assert error < 0.05, "the mean difference between confidence and share"
