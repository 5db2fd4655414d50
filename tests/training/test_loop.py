"""The loop against plain PyTorch and against formulas worked out by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from dragfl.data.dataset import Dataset, from_tensors
from dragfl.rng import rng
from dragfl.training.batches import draw
from dragfl.training.loop import Loop, Share
from dragfl.types import Affine
from dragfl.vector import FlatModel


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_train_is_plain_sgd(toy: Dataset) -> None:
    batches = draw(rng(1, "test"), len(toy.y), 7, 16, "replacement")
    plain = net()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = nnf.cross_entropy(plain(toy.x[batch]), toy.y[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    model = FlatModel(net())
    w0 = model.w.clone()
    out = torch.empty(model.dim)
    mean_loss = Loop(model, toy).train(w0, Share(toy.x, toy.y, batches), 0.3, out)

    trained = torch.cat([p.detach().reshape(-1) for p in plain.parameters()])
    assert (trained - w0).norm() > 0.1, "a loop that does nothing must not pass"
    torch.testing.assert_close(w0 + out, trained, atol=1e-6, rtol=0)
    assert mean_loss == pytest.approx(np.mean(losses), abs=1e-6)


def test_w0_is_not_changed(toy: Dataset) -> None:
    model = FlatModel(net())
    w0 = model.w.clone()
    before = w0.clone()
    out = torch.empty(model.dim)
    share = Share(toy.x, toy.y, [np.arange(5)], Affine(prox=0.1, shift=torch.ones(model.dim)))
    Loop(model, toy).train(w0, share, 0.3, out)
    assert torch.equal(w0, before)


class Slope:
    """One weight vector a and the loss -log softmax: small enough to differentiate by hand."""

    @staticmethod
    def gradient(w: Tensor, x: Tensor, y: int) -> Tensor:
        """For logits Wx (no bias): dL/dW = (softmax(Wx) - onehot(y)) x^T."""
        W = w.reshape(2, 2)
        p = torch.softmax(W @ x, 0)
        p[y] -= 1.0
        return torch.outer(p, x).reshape(-1)


def linear_loop() -> tuple[Loop, Tensor, Tensor, Tensor]:
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    y = torch.tensor([0, 1])
    module = nn.Linear(2, 2, bias=False)
    model = FlatModel(module)
    w0 = torch.tensor([0.1, -0.2, 0.3, 0.4])
    return Loop(model, from_tensors(x, y, x, y)), w0, x, y


def test_affine_direction_by_hand() -> None:
    """direction = scale g + prox (w - w0) + shift over three steps, g from the formula above."""
    loop, w0, x, y = linear_loop()
    shift = torch.tensor([0.1, 0.0, -0.3, 0.2])
    w = w0.clone()
    for i in (0, 1, 0):
        w = w - 0.5 * (0.7 * Slope.gradient(w, x[i], int(y[i])) + 0.4 * (w - w0) + shift)
    out = torch.empty(4)
    loop.train(w0, Share(x, y, [np.array([i]) for i in (0, 1, 0)], Affine(0.7, 0.4, shift)), 0.5, out)
    torch.testing.assert_close(out, w - w0, atol=1e-6, rtol=0)


@pytest.mark.parametrize("affine", [Affine(scale=0.5), Affine(prox=2.0), Affine(shift=torch.full((4,), 0.3))])
def test_each_term_of_the_direction_counts(affine: Affine) -> None:
    loop, w0, x, y = linear_loop()
    batches = [np.array([0]), np.array([1])]
    out, plain = torch.empty(4), torch.empty(4)
    loop.train(w0, Share(x, y, batches, affine), 0.5, out)
    loop.train(w0, Share(x, y, batches), 0.5, plain)
    assert (out - plain).abs().max() > 1e-3


def test_accumulate_by_hand() -> None:
    """The gradient is never cleared: step u moves along g_1 + ... + g_u."""
    loop, w0, x, y = linear_loop()
    w, kept = w0.clone(), torch.zeros(4)
    for i in (0, 1, 1):
        kept = kept + Slope.gradient(w, x[i], int(y[i]))
        w = w - 0.1 * kept
    out = torch.empty(4)
    loop.train(w0, Share(x, y, [np.array([i]) for i in (0, 1, 1)], accumulate=True), 0.1, out)
    torch.testing.assert_close(out, w - w0, atol=1e-6, rtol=0)


def test_double_softmax(toy: Dataset) -> None:
    """The cross-entropy of soft-max outputs: the loss is log-sum-exp over numbers in [0, 1], never near zero."""
    module = net()
    logits = module(toy.x)
    expected = nnf.nll_loss(torch.log_softmax(torch.softmax(logits, 1), 1), toy.y)
    twice = Loop(FlatModel(copy.deepcopy(module)), toy, double_softmax=True)
    once = Loop(FlatModel(module), toy)
    assert twice.loss(toy.x, toy.y)[0].item() == pytest.approx(expected.item(), abs=1e-6)
    assert once.loss(toy.x, toy.y)[0].item() != pytest.approx(expected.item(), abs=1e-3)


def test_score_marks_correct_predictions_and_sums_the_loss(toy: Dataset) -> None:
    model = FlatModel(net())
    w = torch.linspace(-1.0, 1.0, model.dim)
    model.w.copy_(w)
    logits = model.module(toy.test_x)
    loss = nnf.cross_entropy(logits, toy.test_y).item() * len(toy.test_y)
    model.w.zero_()
    correct, summed = Loop(model, toy).score(w, toy.test_x, toy.test_y)
    assert correct.equal(logits.argmax(1) == toy.test_y)
    assert summed == pytest.approx(loss, rel=1e-6)


def test_evaluation_disables_dropout(toy: Dataset) -> None:
    module = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.9))
    loop = Loop(FlatModel(module), toy)
    w = loop.model.w.clone()
    first = loop.score(w, toy.test_x, toy.test_y)[1]
    loop.train(w, Share(toy.x, toy.y, [np.arange(5)]), 0.0, torch.empty_like(w))
    assert loop.score(w, toy.test_x, toy.test_y)[1] == first
