"""Power iteration on Hessian-vector products, against the exact Hessian of a small model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from dragfl.errors import SpecError
from dragfl.models import MODELS
from dragfl.theory.curvature import Parts, hessian_product, largest_curvature, norm, unit
from dragfl.vector import init_module


def directions(module: nn.Module, seed: int = 0) -> Parts:
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=draws) for p in module.parameters()]


def loss_of(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nnf.cross_entropy(module(x), y)


def test_it_is_the_spectral_norm_of_the_hessian() -> None:
    """A network 4-3-3 with tanh on 30 samples: 27 parameters, the Hessian by torch.autograd.functional.hessian."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3))
    x, y = 2 * torch.randn(30, 4), torch.randint(0, 3, (30,))
    names = [name for name, _ in module.named_parameters()]

    def of_vector(w: Tensor) -> Tensor:
        parts = torch.split(w, [p.numel() for p in module.parameters()])
        shaped = {n: part.view_as(p) for n, part, p in zip(names, parts, module.parameters(), strict=True)}
        return nnf.cross_entropy(torch.func.functional_call(module, shaped, (x,)), y)

    w = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    exact = torch.linalg.eigvalsh(torch.autograd.functional.hessian(of_vector, w)).abs().max()
    found, _ = largest_curvature(hessian_product(loss_of(module, x, y), list(module.parameters())), directions(module))
    assert 0.97 * float(exact) < found <= float(exact) * (1 + 1e-5)


def test_a_quadratic_with_a_negative_eigenvalue() -> None:
    """f = (w_1^2 - 5 w_2^2 + 2 w_3^2)/2: the spectral norm is 5, of a direction in which f is concave."""
    w = torch.tensor([0.3, -1.0, 2.0], requires_grad=True)
    product = hessian_product((torch.tensor([1.0, -5.0, 2.0]) * w * w).sum() / 2, [w])
    found, v = largest_curvature(product, [torch.tensor([1.0, 1.0, 1.0])])
    assert found == pytest.approx(5.0, rel=5e-3) and found <= 5.0
    assert abs(float(v[0][1])) == pytest.approx(1.0, abs=2e-2)


def test_one_step_is_a_lower_bound() -> None:
    w = torch.zeros(2, requires_grad=True)
    product = hessian_product((torch.tensor([4.0, 1.0]) * w * w).sum() / 2, [w])
    assert norm(product(unit([torch.tensor([1.0, 1.0])]))) == pytest.approx((17 / 2) ** 0.5)  # below 4


def test_no_curvature() -> None:
    w = torch.ones(2, requires_grad=True)
    assert largest_curvature(hessian_product((0.0 * w * w).sum(), [w]), [torch.ones(2)])[0] == 0.0


def test_a_loss_without_second_derivatives_is_named() -> None:
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(SpecError, match="second derivatives"):
        hessian_product(w.sum(), [w])


IMAGES: dict[str, dict[str, int]] = {
    "logistic": {},
    "mlp": {"hidden": 8},
    "cnn": {"channels": 2},
    "resnet": {"width": 4, "groups": 2},
    "resnet18": {"width": 4, "groups": 2},
}


@pytest.mark.parametrize("name", [*IMAGES, "gru"])
def test_every_model_has_second_derivatives(name: str) -> None:
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(3, 1, 16, 16, generator=draws)
    if name == "gru":
        x = torch.randint(0, 3, (3, 5), generator=draws).float()
    settings = IMAGES.get(name, {"hidden": 6})
    module = init_module(lambda: MODELS[name](tuple(x.shape[1:]), 3, **settings), 0)
    product = hessian_product(loss_of(module, x, torch.tensor([0, 1, 2])), list(module.parameters()))
    assert norm(product(unit(directions(module)))) > 0
