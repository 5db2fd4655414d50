"""The trusted root data: which samples, with what mistakes, and how it is cleaned before use.

All functions are pure in (x, y, rng). The order in a run is `choose`, then `label_noise` where an experiment studies
it, then `confident`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from dragfl.errors import DataError, SpecError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def choose(
    labels: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
    bias: float | None = None,
    favourite: int = 0,
) -> NDArray[np.int64]:
    """`size` sorted sample indices, uniform; with `bias`, that share of them is of the `favourite` class.

    X. Cao et al., FLTrust, NDSS 2021: bias p = 1/L is (near) no bias, p = 1 a root set of one class only.
    """
    if not 0 < size <= len(labels):
        raise DataError(f"root.size: {size} of {len(labels)} samples; give a number from 1 to {len(labels)}")
    if bias is None:
        return np.sort(rng.choice(len(labels), size, replace=False))
    if not 0 <= bias <= 1:
        raise SpecError(f"root.bias: {bias!r}; give a number from 0 to 1")
    here, others = np.flatnonzero(labels == favourite), np.flatnonzero(labels != favourite)
    count = round(bias * size)
    if count > len(here) or size - count > len(others):
        raise DataError(
            f"root.bias: {bias:g} of {size} samples asks for {count} of class {favourite} and {size - count} others, "
            f"there are {len(here)} and {len(others)}; lower root.size or change root.bias"
        )
    chosen = [rng.choice(here, count, replace=False), rng.choice(others, size - count, replace=False)]
    return np.sort(np.concatenate(chosen))


def label_noise(y: Tensor, classes: int, rate: float, rng: np.random.Generator) -> Tensor:
    """Labels of which a share `rate` is replaced by another class, uniformly: how good must a root set be?"""
    if not 0 <= rate <= 1 or classes < 2:
        raise SpecError(f"label noise: rate={rate!r} of {classes} classes; give a rate from 0 to 1 and 2 classes")
    rows = torch.from_numpy(rng.choice(len(y), round(rate * len(y)), replace=False))
    step = torch.from_numpy(rng.integers(1, classes, len(rows)))
    out = y.clone()
    out[rows] = (out[rows] + step) % classes
    return out


def principal(x: Tensor, rng: np.random.Generator, components: int = 40) -> Tensor:
    """(n, components) projections of the inputs on their main directions, the widest with deviation 3.

    Found by two rounds of subspace iteration from a random start: N. Halko, P.-G. Martinsson, J. A. Tropp, Finding
    Structure with Randomness, SIAM Review 2011.
    """
    flat = x.detach().reshape(len(x), -1).float()
    flat = flat - flat.mean(0)
    components = min(components, *flat.shape)
    basis = torch.from_numpy(rng.standard_normal((flat.shape[1], min(components + 10, *flat.shape)))).float()
    for _ in range(3):
        basis = torch.linalg.qr(flat.T @ (flat @ basis)).Q
    seen: Tensor = flat @ basis
    seen = seen @ torch.linalg.svd(seen, full_matrices=False).Vh[:components].T
    scaled: Tensor = seen * (3.0 / seen.std(0).max().clamp_min(1e-12))
    return scaled


def out_of_fold(x: Tensor, y: Tensor, classes: int, rng: np.random.Generator, folds: int = 5) -> Tensor:
    """(n, classes) probabilities, each row from a softmax regression that never saw it. x: (n, ...) floats.

    Folds hold the same share of every class. The classifier sees the principal components only and takes few steps:
    too weak to learn wrong labels by heart, which is what is wanted.
    """
    seen = functional.pad(principal(x, rng), (0, 1), value=1.0)  # the last column is the offset
    order = rng.permutation(len(y))
    order = order[np.argsort(y.numpy()[order], kind="stable")]
    fold = torch.empty(len(y), dtype=torch.int64)
    fold[torch.from_numpy(order)] = torch.arange(len(y)) % folds
    out = torch.empty(len(y), classes)
    for k in range(folds):
        train, test = fold != k, fold == k
        out[test] = (seen[test] @ _softmax_regression(seen[train], y[train], classes)).softmax(1)
    return out


def _softmax_regression(x: Tensor, y: Tensor, classes: int, steps: int = 100, lr: float = 0.2) -> Tensor:
    """(features, classes) weights: gradient steps with momentum 0.9 on the cross-entropy, from zero."""
    target = functional.one_hot(y, classes).float()
    weight = torch.zeros(x.shape[1], classes)
    velocity = torch.zeros_like(weight)
    for _ in range(steps):
        gradient = x.T @ ((x @ weight).softmax(1) - target) / len(x)
        velocity = 0.9 * velocity + gradient
        weight = weight - lr * velocity
    return weight


def doubtful(probability: Tensor, y: Tensor) -> Tensor:
    """(n,) true where confident learning puts a sample off the diagonal of the joint of given and true labels.

    The threshold of class j is the mean probability of j among samples labelled j. A sample's true label is the
    likeliest of the classes whose threshold it reaches; it is doubtful if that is not the label given, and kept if
    it reaches none. C. Northcutt, L. Jiang, I. Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels,
    JAIR 2021.
    """
    classes = probability.shape[1]
    member = functional.one_hot(y, classes).double()
    mean = (member * probability.double()).sum(0) / member.sum(0).clamp_min(1)
    threshold = torch.where(member.sum(0) > 0, mean, torch.full_like(mean, torch.inf))
    reached = torch.where(probability >= threshold, probability.double(), torch.full_like(member, -1.0))
    best, label = reached.max(1)
    return (best >= 0) & (label != y)


def confident(x: Tensor, y: Tensor, classes: int, rng: np.random.Generator, folds: int = 5) -> Tensor:
    """(n,) true for the root samples to keep: `root.clean = "confident"`, a vetted root set.

    Every class keeps at least its most believable sample, so cleaning never removes a class. Where classes are hard to
    tell apart (CIFAR-10), good samples are dropped with the bad: give a larger root set there.
    """
    if len(y) < folds:
        raise DataError(
            f"root.clean: {len(y)} root samples are fewer than {folds} folds; raise root.size or do not clean"
        )
    probability = out_of_fold(x, y, classes, rng, folds)
    keep = ~doubtful(probability, y)
    own = probability.gather(1, y[:, None])[:, 0]
    for label in set(y.tolist()):
        rows = torch.nonzero(y == label)[:, 0]
        if not bool(keep[rows].any()):
            keep[rows[own[rows].argmax()]] = True
    return keep
