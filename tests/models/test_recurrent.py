"""The character-level GRU: its size, its output by hand, and equal bits however a federation trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl.data.sources.play import generate_play
from dragfl.errors import DataError, Interrupted, SpecError
from dragfl.models import gru, networks
from dragfl.vector import FlatModel
from tests.conftest import kept_bytes


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Any]:
    """Three speakers of a small play."""
    path = tmp_path / "play.txt"
    path.write_text(generate_play(3, 12))
    return {
        "rounds": 3,
        "data": {"dataset": f"text:{path}?window=8", "partition": {"kind": "by_group"}},
        "clients": {"total": 3, "local_steps": 2, "batch_size": 8, "lr": 1.0},
        "model": {"name": "gru", "embedding": 4, "hidden": 8},
        "evaluation": {"every": 1},
        "engine": {"workers": 1},
    }


def test_size() -> None:
    """44*16 embeddings; a GRU layer has three gates of (16 + 64) inputs, 64 outputs and two biases; head 64*44 + 44."""
    by_hand = 44 * 16 + 3 * 64 * (16 + 64 + 2) + 64 * 44 + 44
    assert sum(p.numel() for p in gru((20,), 44).parameters()) == by_hand == 19_308
    assert networks.__doc__ is not None and f"{by_hand:,} for 44 characters" in networks.__doc__
    more = sum(p.numel() for p in gru((20,), 44, layers=2).parameters())
    assert more - by_hand == 3 * 64 * (64 + 64 + 2)


def test_by_hand() -> None:
    """One character, hidden size 1, all gate weights zero but the input weight of the candidate.

    r = z = sigmoid(0) = 1/2, n = tanh(2 * 0.5) with embedding 0.5, h = (1 - z) n + z * 0 = tanh(1) / 2; the head
    doubles it and adds 1.
    """
    module: Any = gru((1,), 2, embedding=1, hidden=1)
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
        module.embed.weight[1] = 0.5
        module.gru.weight_ih_l0[2] = 2.0
        module.head.weight[0], module.head.bias[0] = 2.0, 1.0
    scores = module(torch.tensor([[1.0], [0.0]]))
    expected = torch.tensor([[1.0 + torch.tanh(torch.tensor(1.0)).item(), 0.0], [1.0, 0.0]])
    torch.testing.assert_close(scores, expected)


def test_only_the_window_is_read() -> None:
    """The scores depend on every position of the window."""
    torch.manual_seed(0)
    module, x = gru((5,), 9), torch.randint(0, 9, (1, 5)).float()
    for position in range(5):
        changed = x.clone()
        changed[0, position] = (changed[0, position] + 1) % 9
        assert not module(changed).equal(module(x)), position


def test_parameters_are_views_of_the_flat_vector() -> None:
    """The GRU reads its weights through a list of its own; it must see what is written to the vector."""
    torch.manual_seed(0)
    module, x = gru((5,), 9, hidden=4), torch.randint(0, 9, (3, 5)).float()
    model = FlatModel(module)
    before = module(x)
    model.load(torch.zeros(model.dim))
    assert module(x).eq(0).all() and not before.eq(0).all()
    gradients = torch.autograd.grad(module(x).sum(), model.parameters)
    assert [g.shape for g in gradients] == [p.shape for p in model.parameters]
    assert all(p.untyped_storage().data_ptr() == model.w.untyped_storage().data_ptr() for p in model.parameters)


@pytest.mark.parametrize("algorithm", ["fedavg", "drag", "scaffold", "mime"])
def test_runs_are_repeatable_and_resumed(algorithm: str, tables: dict[str, Any], tmp_path: Path) -> None:
    experiment = dragfl.load({**tables, "algorithm": {"name": algorithm}, "checkpoint": {"every": 1}})
    whole = dragfl.run(experiment, tmp_path / "whole")
    with pytest.raises(Interrupted):
        dragfl.run(experiment, tmp_path / "cut", should_stop=lambda: True)
    cut = dragfl.resume(tmp_path / "cut")
    assert kept_bytes(cut.path) == kept_bytes(whole.path)
    assert whole.metrics[-1]["loss"] < whole.metrics[0]["loss"]


def test_two_workers_have_the_same_bits(tables: dict[str, Any], tmp_path: Path) -> None:
    one = dragfl.run(dragfl.load(tables), tmp_path / "one")
    two = dragfl.run(dragfl.load(tables, "engine.workers=2"), tmp_path / "two")
    assert kept_bytes(one.path) == kept_bytes(two.path)
    assert one.spec["engine"]["trainer"] == "reference"
    gru((8,), one.info["classes"], embedding=4, hidden=8).load_state_dict(one.model(), strict=True)


def test_it_learns(tables: dict[str, Any]) -> None:
    """The most frequent character is a sixth of the text."""
    more = {"total": 3, "local_steps": 40, "batch_size": 20, "lr": 3.0}
    *_, last = dragfl.simulate(dragfl.load({**tables, "clients": more, "model": {"name": "gru", "hidden": 16}}))
    assert last.metrics["accuracy"] > 0.28


def test_attacks_on_text(tables: dict[str, Any]) -> None:
    """A backdoor needs images; flipped labels are flipped characters."""
    flipped = dragfl.load({**tables, "attack": {"name": "label_flip", "attackers": 1}})
    assert [r.metrics["attackers"] for r in dragfl.simulate(flipped)] == [1, 1, 1]
    with pytest.raises(DataError, match=r"attack.size: .* inputs of shape \(8,\); lower it, or use images"):
        dragfl.simulate(dragfl.load({**tables, "attack": {"name": "backdoor", "attackers": 1}}))


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((1, 8, 8), {}, r"inputs of shape \(1, 8, 8\); it needs windows of characters"),
        ((8,), {"hidden": 0}, "hidden=0"),
        ((8,), {"embedding": -1}, "embedding=-1"),
        ((8,), {"layers": 0}, "layers=0"),
    ],
)
def test_errors(shape: tuple[int, ...], settings: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        gru(shape, 10, **settings)


def test_features_that_are_no_codes() -> None:
    """Standardised features are negative: no character has such a code."""
    with pytest.raises(SpecError, match=r"CharacterGRU: it does not accept inputs of shape \(30,\)"):
        dragfl.simulate(dragfl.load({"data": {"dataset": "breast_cancer"}, "model": {"name": "gru"}}))
