"""Matrix products by oneDNN equal torch's own, and a client's bits do not depend on the others of its group."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from dragfl.training import products
from dragfl.training.products import LARGE, ROWS, add_outer_products, forward, linear

DRAWS = torch.Generator().manual_seed(4)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAWS)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (3,)], ids=["one client", "a group"])
@pytest.mark.parametrize("samples", [4, 60], ids=["small", "large"])
def test_linear(samples: int, lead: tuple[int, ...], bias: bool) -> None:
    """4 x 200 x 300 products are below the limit, 60 x 200 x 300 are above it; float64 decides."""
    assert (samples * 200 * 300 >= LARGE) == (samples == 60)
    x, weight, b = noise(*lead, samples, 200), noise(300, 200), noise(300) if bias else None
    exact = nnf.linear(x.double(), weight.double(), None if b is None else b.double())
    torch.testing.assert_close(linear(x, weight, b), exact.float(), rtol=1e-5, atol=1e-4)


def test_transposed_views() -> None:
    """The update of a layer is a product of transposed views: errors^T inputs."""
    errors, inputs = noise(100, 90), noise(100, 200)
    product = linear(errors.mT, inputs.mT)
    torch.testing.assert_close(product, (errors.double().mT @ inputs.double()).float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward(dtype: torch.dtype, bias: bool) -> None:
    """The first layer is above the limit, the second below it; other modules are called as they are."""
    hidden, out = nn.Linear(200, 300, bias=bias, dtype=dtype), nn.Linear(300, 5, bias=bias, dtype=dtype)
    chain, x = nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), out), noise(60, 2, 100).to(dtype)
    with torch.no_grad():
        torch.testing.assert_close(forward(chain, x), chain(x), rtol=1e-5, atol=1e-5)
        assert torch.equal(forward(hidden, x.flatten(1)), hidden(x.flatten(1)))


@pytest.mark.parametrize("samples", [ROWS - 1, ROWS])
def test_add_outer_products(samples: int) -> None:
    weight, errors, inputs = noise(300, 200), noise(samples, 300), noise(samples, 200)
    exact = weight.double() - 0.5 * errors.double().mT @ inputs.double()
    add_outer_products(weight, errors, inputs, -0.5)
    torch.testing.assert_close(weight, exact.float(), rtol=1e-5, atol=1e-4)


def test_a_torch_without_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = noise(60, 200), noise(300, 200)
    expected = linear(x, weight)
    monkeypatch.setattr(products, "_LINEAR", None)
    torch.testing.assert_close(linear(x, weight), expected, rtol=1e-5, atol=1e-4)
    assert torch.equal(linear(x, weight), nnf.linear(x, weight))


def test_this_torch_has_the_operator() -> None:
    """A new version of torch may drop or rename it, and training would be slower without a word."""
    assert not torch.backends.mkldnn.is_available() or products._LINEAR is not None  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("samples", [5, 30])
def test_a_group_of_clients_has_the_bits_of_each(samples: int) -> None:
    """5 x 784 x 200 products of one client are below the limit, those of 3 clients above it."""
    assert (3 * samples * 784 * 200 >= LARGE) and (samples * 784 * 200 >= LARGE) == (samples == 30)
    x, weight, bias = noise(3, samples, 784), noise(200, 784), noise(200)
    alone = torch.stack([linear(client, weight, bias) for client in x])
    assert torch.equal(linear(x, weight, bias), alone)
