"""Folding in worker processes: which plans can be sent, and a worker that dies while it folds."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from dragfl.aggregates import Drag
from dragfl.engine.aggregation import Total
from dragfl.engine.backends.shared_memory import tensor_fields
from dragfl.types import FederationInfo, RoundContext, RoundInputs
from tests.engine.backends.test_pool import PARTS, run_digits

DRAWS = torch.Generator().manual_seed(1)
X = torch.randn(11, 7, generator=DRAWS)
INFO = FederationInfo(7, 11, 11, (0, 7))


def test_plans_that_can_be_sent_to_a_worker() -> None:
    rule = Drag()
    plan = rule.begin(rule.init(INFO), RoundContext(0, 0.1, 0), RoundInputs(mean=X[0]), INFO)
    found = tensor_fields(plan)
    assert found is not None and found.keys() == {"r", "rhat"}
    assert tensor_fields(None) == {} == tensor_fields(Total())
    assert tensor_fields({"r": X[0]}) is None
    assert tensor_fields(RoundInputs(mean=[X[0]])) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("workers", "task"), [(2, r"clients [\d, ]+"), (3, "the sum of [56] clients")])
def test_a_worker_that_dies_while_it_folds_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int, task: str
) -> None:
    """Two workers train and fold a block each; three workers cut the two blocks into pieces."""
    changes: dict[str, Any] = {"algorithm": {"aggregate": f"{PARTS}:FragileMean"}, "engine": {"trainer": "reference"}}
    alone = run_digits(1, **changes)
    monkeypatch.setenv("POOL_TEST", str(tmp_path))
    (tmp_path / "die once folding").touch()
    with caplog.at_level(logging.WARNING, "dragfl"):
        assert run_digits(workers, **changes) == alone
    assert not list(tmp_path.iterdir())
    assert re.search(f"; {task} will be repeated", caplog.text)
