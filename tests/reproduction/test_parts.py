"""The parts that only the reproduction uses: the authors' AdaBest and SCAFFOLD."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dragfl import simulate
from dragfl.reproduction.parts import AdaBestFromZero, SharedVariateScaffold
from dragfl.testing import check_correction
from dragfl.types import FederationInfo, LocalResult, RoundContext, RoundInputs

SPEC = {
    "rounds": 3,
    "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
    "clients": {"total": 6, "local_steps": 2, "batch_size": 5, "lr": 0.1},
    "model": {"name": "logistic"},
    "root": {"size": 50, "source": "test"},
}


def model_of(algorithm: dict[str, Any], **clients: int) -> torch.Tensor:
    spec = {**SPEC, "algorithm": algorithm, "clients": {**SPEC["clients"], **clients}}  # type: ignore[dict-item]
    run = simulate(spec)
    assert len(list(run)) == 3
    return torch.cat([value.flatten() for value in run.model().values()])


def test_adabest_from_zero_scales_the_weights_by_one_plus_beta_in_the_first_round() -> None:
    """theta^1 = (1 + 0.8) (w + step) with w = 2 and step = 1: 5.4. Then average 7 after 3: 7 + 0.8 (7 - 3) = 10.2."""
    step, w, now = torch.ones(1), torch.full((1,), 2.0), RoundContext(0, lr=0.1, seed=0)
    part = AdaBestFromZero(beta=0.8)
    first, state = part.update(part.init(FederationInfo(1, 2, 2, (0, 1))), step, w, now)
    assert first.item() == pytest.approx(5.4)
    second, _ = part.update(state, torch.full((1,), 1.6), first, now)
    assert second.item() == pytest.approx(10.2)


def test_the_scaffold_satisfies_its_contract() -> None:
    check_correction(SharedVariateScaffold())


def test_the_variate_is_the_mean_gradient_of_the_root_steps() -> None:
    """Five steps of 0.1 that end at -1 had a mean gradient of 2."""
    part = SharedVariateScaffold()
    state = part.init(FederationInfo(2, 4, 4, (0, 2)))
    context, root = RoundContext(0, lr=0.1, seed=0), torch.tensor([-1.0, 0.5])
    sent = part.broadcast(state, context, RoundInputs(root=root))
    assert sent["c"].tolist() == [0.0, 0.0]
    result = LocalResult(torch.ones(2), 5, 0.1, 10, lambda: torch.ones(2))
    mine = {"c": torch.zeros(2)}
    assert part.client_finish(result, mine, sent, context)[1]["c"].tolist() == pytest.approx([2.0, -1.0])
    assert part.client_finish(replace(result, lr=0.0), mine, sent, context)[1]["c"].tolist() == [0.0, 0.0]


def test_the_authors_scaffold_equals_fedavg_at_full_participation() -> None:
    shared = {"correction": "dragfl.reproduction.parts:SharedVariateScaffold"}
    torch.testing.assert_close(model_of(shared), model_of({"name": "fedavg"}), rtol=0, atol=1e-6)
    difference = model_of(shared, per_round=2) - model_of({"name": "fedavg"}, per_round=2)
    assert difference.norm() > 1e-3  # at partial participation the correction is not zero


def test_a_correction_without_its_root_data_is_an_error() -> None:
    bare = {k: v for k, v in SPEC.items() if k != "root"}
    with pytest.raises(ValueError, match="needs trusted root data"):
        simulate({**bare, "algorithm": {"correction": "dragfl.reproduction.parts:SharedVariateScaffold"}})
