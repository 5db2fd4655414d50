"""Gradients of the clients at one model, from a subsample: |grad f|^2, sigma_L and sigma_G.

Each client gives K disjoint batches of b samples, drawn without replacement from its n. With the batch gradients g_j
and their mean g_m, the variance of one sample's gradient is estimated by

    s_m^2 = b/(K - 1) sum_j |g_j - g_m|^2,    sigma_L^2 = s_m^2 (n - 1)/n,    v_m = s_m^2/(K b) (1 - K b/n)

and v_m is the variance of g_m itself. It is subtracted where squares of g_m are used, so the estimates of |grad f|^2
and of sigma_G^2 are unbiased; a negative one is set to 0. Drawing clients is a second stage of sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.data.partitions.split import ClientSplit
from dragfl.rng import rng
from dragfl.training.loop import Loop

MOST_CLIENTS, MOST_SAMPLES, BATCHES = 40, 200, 10  # clients, samples of a client, batches of a client
MEMORY = 512 << 20  # bytes of the client gradients that are kept; fewer clients of a model that is larger


@dataclass(frozen=True)
class Subsample:
    """The samples that the estimates use, the same at every model."""

    clients: tuple[int, ...]
    batches: tuple[tuple[NDArray[np.int64], ...], ...]  # of each client: rows, all batches of one size
    held: tuple[int, ...]  # samples that each client holds
    population: int  # clients with data

    @property
    def samples(self) -> int:
        return sum(len(batch) for client in self.batches for batch in client)

    def rows(self, i: int) -> NDArray[np.int64]:
        """All rows of the i-th client."""
        return np.concatenate(self.batches[i])


def draw_subsample(split: ClientSplit, dim: int, seed: int) -> Subsample:
    """Clients in random order, and batches of each; addressed by the seed and the client."""
    with_data = np.flatnonzero(split.sizes > 0)
    most = max(2, min(MOST_CLIENTS, MEMORY // (4 * dim)))
    clients = rng(seed, "theory clients").permutation(with_data)[:most].tolist()
    batches, held = [], []
    for m in clients:
        rows = rng(seed, "theory samples", m).permutation(split.samples_of(m))
        held.append(len(rows))
        size = max(1, min(len(rows), MOST_SAMPLES) // BATCHES)
        count = min(len(rows), MOST_SAMPLES) // size
        batches.append(tuple(rows[size * j : size * (j + 1)] for j in range(count)))
    return Subsample(tuple(clients), tuple(batches), tuple(held), len(with_data))


@dataclass(frozen=True)
class GradientEstimates:
    """The estimates at one model."""

    loss: float  # f
    squared_gradient: float  # |grad f|^2
    noise: tuple[float, ...]  # sigma_L of each client
    heterogeneity: tuple[float, ...]  # |grad F_m - grad f| of each client


def estimate_gradients(loop: Loop, subsample: Subsample, on_client: Callable[[], None]) -> GradientEstimates:
    """The estimates at the model that `loop` has loaded."""
    means = torch.empty(len(subsample.clients), loop.model.dim)
    losses, noise, variance = [], [], []
    for i, (batches, held) in enumerate(zip(subsample.batches, subsample.held, strict=True)):
        loss, spread = _client_gradient(loop, batches, means[i])
        used, size = sum(map(len, batches)), len(batches[0])
        losses.append(loss)
        noise.append((size * spread * (held - 1) / held) ** 0.5)
        variance.append(size * spread / used * (1 - used / held))
        on_client()
    return _combine(means, losses, noise, np.array(variance), subsample.population)


def _combine(
    means: Tensor, losses: list[float], noise: list[float], variance: NDArray[np.float64], population: int
) -> GradientEstimates:
    count = len(means)
    mean = means.double().mean(0)
    apart = np.array([float((row.double() - mean).square().sum()) for row in means])
    drawn = count / population
    between = apart.sum() / max(1, count - 1)
    of_mean = ((1 - drawn) * between + drawn * variance.mean()) / count  # the variance of `mean`
    own = (1 - 2 / count) * variance + variance.sum() / count**2  # what noise adds to `apart`
    return GradientEstimates(
        loss=float(np.mean(losses)),
        squared_gradient=max(0.0, float(mean.square().sum()) - float(of_mean)),
        noise=tuple(noise),
        heterogeneity=tuple(np.sqrt(np.maximum(apart - own, 0.0)).tolist()),
    )


def _client_gradient(loop: Loop, batches: tuple[NDArray[np.int64], ...], out: Tensor) -> tuple[float, float]:
    """(mean loss, 1/(K - 1) sum_j |g_j - mean|^2) of a client's batches; `out` is set to the mean gradient."""
    out.zero_()
    total = squares = 0.0
    for x, y in _samples(loop, batches):
        loss, _ = loop.loss(x, y)
        gradient = torch.autograd.grad(loss, loop.model.parameters)
        total += loss.item()
        for view, part in zip(loop.model.views(out), gradient, strict=True):
            view += part.cpu() / len(batches)
            squares += float(part.double().square().sum())
    count = len(batches)
    between = squares - count * float(out.double().square().sum())
    return total / count, max(0.0, between) / max(1, count - 1)


def _samples(loop: Loop, batches: tuple[NDArray[np.int64], ...]) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in batches:
        yield samples(loop, batch)


def samples(loop: Loop, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """(x, y) of rows of the training data, as stored."""
    index = torch.from_numpy(rows).to(loop.dataset.y.device)
    return loop.dataset.x.index_select(0, index), loop.dataset.y.index_select(0, index)
