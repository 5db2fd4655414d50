"""Every named algorithm through the whole engine: any block size, float32 models, and a stop that leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dragfl
from dragfl.algorithms import PRESETS
from dragfl.errors import Interrupted
from tests.conftest import Load, kept_bytes


def preset(experiment: Load, name: str, **changes: object) -> dragfl.Experiment:
    clients = {"per_round": 4, "local_steps": [1, 3], "lr": 0.05}
    return experiment(rounds=4, algorithm={"name": name}, root={"size": 20}, clients=clients, **changes)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_blocks_agree(experiment: Load, name: str) -> None:
    finals = []
    for block in (1, 3, 20):
        simulation = dragfl.simulate(preset(experiment, name, engine={"block": block}))
        start = simulation.state.w.clone()
        records = list(simulation)
        assert simulation.state.w.dtype == torch.float32
        assert torch.isfinite(simulation.state.w).all()
        assert (simulation.state.w - start).norm() > 1e-3
        assert all("skipped" not in record.metrics for record in records)
        finals.append(simulation.state.w)
    for final in finals[1:]:
        torch.testing.assert_close(final, finals[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_stopped_and_resumed(experiment: Load, tmp_path: Path, name: str) -> None:
    spec = preset(experiment, name, checkpoint={"every": 3})
    whole = dragfl.run(spec, tmp_path / "whole")
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(asked))
    assert kept_bytes(dragfl.resume(tmp_path / "cut", spec).path) == kept_bytes(whole.path)
