"""The trusted root data: sampling, label noise, and filtering by confident learning.

All functions are pure in (x, y, rng). A run calls `sample_root`, then `add_label_noise` if `root.noise` is set, then
`confident_samples` if the root data are filtered.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dragfl.errors import DataError, SpecError


def sample_root(
    labels: NDArray[np.int64],
    size: int,
    rng: np.random.Generator,
    bias: float | None = None,
    biased_class: int = 0,
) -> NDArray[np.int64]:
    """Draw `size` sorted sample indices, uniformly; with `bias`, that fraction of them has the label `biased_class`.

    X. Cao et al., FLTrust, NDSS 2021: bias p = 1/L is close to no bias, p = 1 is a root set of one class.
    """
    if not 0 < size <= len(labels):
        raise DataError(f"root.size: {size} of {len(labels)} samples; give a number from 1 to {len(labels)}")
    if bias is None:
        return np.sort(rng.choice(len(labels), size, replace=False))
    if not 0 <= bias <= 1:
        raise SpecError(f"root.bias: {bias!r}; give a number from 0 to 1")
    here, others = np.flatnonzero(labels == biased_class), np.flatnonzero(labels != biased_class)
    count = round(bias * size)
    if count > len(here) or size - count > len(others):
        raise DataError(
            f"root.bias: {bias:g} of {size} samples needs {count} of class {biased_class} and {size - count} others, "
            f"there are {len(here)} and {len(others)}; lower root.size or change root.bias"
        )
    chosen = [rng.choice(here, count, replace=False), rng.choice(others, size - count, replace=False)]
    return np.sort(np.concatenate(chosen))


def add_label_noise(y: Tensor, classes: int, rate: float, rng: np.random.Generator) -> Tensor:
    """Replace a fraction `rate` of the labels by another class, drawn uniformly."""
    if not 0 <= rate <= 1 or classes < 2:
        raise SpecError(f"label noise: rate={rate!r} of {classes} classes; give a rate from 0 to 1 and 2 classes")
    rows = torch.from_numpy(rng.choice(len(y), round(rate * len(y)), replace=False))
    step = torch.from_numpy(rng.integers(1, classes, len(rows)))
    out = y.clone()
    out[rows] = (out[rows] + step) % classes
    return out


def principal_components(x: Tensor, rng: np.random.Generator, components: int = 40) -> Tensor:
    """(n, components) principal components of the inputs, scaled so that the first has standard deviation 3.

    Computed by randomized subspace iteration: N. Halko, P.-G. Martinsson, J. A. Tropp, Finding
    Structure with Randomness, SIAM Review 2011.
    """
    flat = x.detach().reshape(len(x), -1).float()
    flat = flat - flat.mean(0)
    components = min(components, *flat.shape)
    basis = torch.from_numpy(rng.standard_normal((flat.shape[1], min(components + 10, *flat.shape)))).float()
    for _ in range(3):
        basis = torch.linalg.qr(flat.T @ (flat @ basis)).Q
    projected: Tensor = flat @ basis
    projected = projected @ torch.linalg.svd(projected, full_matrices=False).Vh[:components].T
    scaled: Tensor = projected * (3.0 / projected.std(0).max().clamp_min(1e-12))
    return scaled


def out_of_fold_probabilities(x: Tensor, y: Tensor, classes: int, rng: np.random.Generator, folds: int = 5) -> Tensor:
    """(n, classes) probabilities, each row from a softmax regression trained on the other folds. x: (n, ...) floats.

    Folds are stratified by class. The classifier uses the principal components only and takes few steps, so that it
    does not memorise wrong labels.
    """
    features = functional.pad(principal_components(x, rng), (0, 1), value=1.0)  # the last column is the intercept
    order = rng.permutation(len(y))
    order = order[np.argsort(y.numpy()[order], kind="stable")]
    fold = torch.empty(len(y), dtype=torch.int64)
    fold[torch.from_numpy(order)] = torch.arange(len(y)) % folds
    out = torch.empty(len(y), classes)
    for k in range(folds):
        train, test = fold != k, fold == k
        out[test] = (features[test] @ _softmax_regression(features[train], y[train], classes)).softmax(1)
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


def likely_mislabeled(probability: Tensor, y: Tensor) -> Tensor:
    """(n,) true where confident learning estimates a true label that differs from the given one.

    The threshold of class j is the mean probability of j among samples labelled j. The estimated label is the most
    probable of the classes whose threshold the sample reaches; a sample that reaches none is kept. C. Northcutt,
    L. Jiang, I. Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021.
    """
    classes = probability.shape[1]
    member = functional.one_hot(y, classes).double()
    mean = (member * probability.double()).sum(0) / member.sum(0).clamp_min(1)
    threshold = torch.where(member.sum(0) > 0, mean, torch.full_like(mean, torch.inf))
    reached = torch.where(probability >= threshold, probability.double(), torch.full_like(member, -1.0))
    best, label = reached.max(1)
    return (best >= 0) & (label != y)


def confident_samples(x: Tensor, y: Tensor, classes: int, rng: np.random.Generator, folds: int = 5) -> Tensor:
    """(n,) true for the root samples to keep after confident learning.

    Every class keeps at least its most probable sample, so no class is removed. Where classes are hard to separate
    (CIFAR-10), correct samples are dropped too: use a larger root set there.
    """
    if len(y) < folds:
        raise DataError(
            f"root.filter: {len(y)} root samples are fewer than {folds} folds; raise root.size or do not clean"
        )
    probability = out_of_fold_probabilities(x, y, classes, rng, folds)
    keep = ~likely_mislabeled(probability, y)
    given = probability.gather(1, y[:, None])[:, 0]
    for label in set(y.tolist()):
        rows = torch.nonzero(y == label)[:, 0]
        if not bool(keep[rows].any()):
            keep[rows[given[rows].argmax()]] = True
    return keep
