"""Refusals are counted by node and reason, and each kind is logged once."""

from __future__ import annotations

import logging

import pytest

from dragfl.flower.refusals import Refusals


def test_counts_by_node_and_reason_and_logs_each_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    with caplog.at_level(logging.WARNING, "dragfl"):
        for _ in range(3):
            refusals.add("node0", "not finite", "weight: 1 of 4 values are NaN\nor infinite")
        refusals.add("node0", "doubled")
        refusals.add("15531545569531897383", "not finite")
    assert refusals.counts == {"node0": {"not finite": 3, "doubled": 1}, "15531545569531897383": {"not finite": 1}}
    assert refusals.total == 5
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "node node0: left out: not finite: weight: 1 of 4 values are NaN or infinite",
        "node node0: left out: doubled",
        "node 15531545569531897383: left out: not finite",
    ]
    assert refusals.as_table()[0] == {"node": "15531545569531897383", "reason": "not finite", "count": 1}
    assert len(refusals.as_table()) == 3


def test_an_unknown_reason_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="unknown reason"):
        Refusals().add("node0", "because")
