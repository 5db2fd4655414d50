"""A module and its flat vector share memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dragfl.errors import SpecError
from dragfl.vector import FlatModel, init_module


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def test_writing_the_vector_changes_the_module() -> None:
    """All weights 1 and biases 1: relu(1*1 + 1*2 + 1) = 4 in three units, so the output is 3*4 + 1 = 13."""
    model = FlatModel(small())
    model.w.fill_(1.0)
    assert model.module(torch.tensor([[1.0, 2.0]])).item() == 13.0


def test_a_step_on_the_module_changes_the_vector() -> None:
    model = FlatModel(small())
    with torch.no_grad():
        model.module[2].bias.fill_(42.0)
    assert model.w[-1].item() == 42.0


def test_parameters_are_views_of_the_vector() -> None:
    model = FlatModel(small())
    start = model.w.data_ptr()
    assert [p.data_ptr() - start for p in model.module.parameters()] == [4 * a for a in model.segments[:-1]]
    other = torch.zeros(model.dim)
    model.views(other)[1][0] = 5.0
    assert other[6].item() == 5.0


def test_segments_are_tensor_boundaries() -> None:
    """Weight 2x3, bias 3, weight 3x1, bias 1."""
    model = FlatModel(small())
    assert model.segments == (0, 6, 9, 12, 13)
    assert model.dim == 13
    assert [tuple(v.shape) for v in model.views(model.w)] == [(3, 2), (3,), (1, 3), (1,)]


def test_named_is_a_state_dict_of_copies() -> None:
    model = FlatModel(small())
    vector = torch.arange(13.0)
    fresh = small()
    fresh.load_state_dict(model.named(vector))
    assert torch.equal(FlatModel(fresh).w, vector)
    model.named(vector)["0.bias"].zero_()
    assert vector[6].item() == 6.0, "named() must return copies"


def test_frozen_parameters_are_not_part_of_the_vector() -> None:
    module = small()
    module[0].weight.requires_grad_(False)
    frozen = module[0].weight.clone()
    model = FlatModel(module)
    assert model.names == ["0.bias", "2.weight", "2.bias"]
    assert model.dim == 7
    model.w.zero_()
    assert torch.equal(model.module[0].weight, frozen)


def test_a_module_without_parameters_is_refused() -> None:
    with pytest.raises(SpecError, match="Flatten has no trainable parameters"):
        FlatModel(nn.Flatten())


def test_batch_norm_is_refused_with_the_name_of_the_layer() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with pytest.raises(SpecError, match=r"layer '1' \(BatchNorm1d\) has buffers.*GroupNorm"):
        FlatModel(module)


def test_float64_is_refused_with_the_name_of_the_parameter() -> None:
    module = small()
    module[2].double()
    with pytest.raises(SpecError, match=r"2\.weight is torch\.float64"):
        FlatModel(module)


def test_initial_weights_depend_on_the_seed_alone() -> None:
    first, again, other = (FlatModel(init_module(small, seed)) for seed in (1, 1, 2))
    assert torch.equal(first.w, again.w)
    assert not torch.equal(first.w, other.w)


def test_the_global_generator_is_unchanged() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    FlatModel(init_module(small, 5))
    assert torch.equal(torch.rand(3), expected)
