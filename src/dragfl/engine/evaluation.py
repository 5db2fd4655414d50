"""Metrics of a model from the counts of its correct predictions: overall, per class, and per client.

    a_k = correct predictions of class k / test samples of class k
    A_m = sum_k pi_mk a_k,    pi_m the label distribution of the training data of client m

A_m is the accuracy of client m on its own label distribution. A class without test samples has no a_k: it is left out
of A_m, and the rest of pi_m is renormalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions import label_counts
from dragfl.data.partitions.split import ClientSplit

MAX_CLIENTS = 10_000  # of a larger population, this many evenly spaced clients are evaluated


class Score(NamedTuple):
    """One evaluated block of samples."""

    correct: tuple[int, ...]  # correct predictions of each class
    loss: float  # summed over the samples


def mean_scores(scores: Sequence[Score], samples: int) -> dict[str, Any]:
    """Accuracy and mean loss."""
    correct, loss = 0, 0.0
    for score in scores:
        correct, loss = correct + sum(score.correct), loss + score.loss
    return {"accuracy": correct / samples, "loss": loss / samples}


def class_accuracies(scores: Sequence[Score], samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """(classes,) accuracy on each class, from its number of test samples; NaN for a class without any."""
    correct = np.array([score.correct for score in scores], np.float64).sum(0)
    accuracies: NDArray[np.float64] = np.divide(correct, samples, out=np.full(len(samples), np.nan), where=samples > 0)
    return accuracies


def client_label_counts(split: ClientSplit, labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """(clients, classes) training samples of the clients that are evaluated."""
    step = -(-split.clients // MAX_CLIENTS)
    return label_counts(split, labels, classes, range(0, split.clients, step))


def client_accuracies(counts: NDArray[np.int64], per_class: NDArray[np.float64]) -> NDArray[np.float64]:
    """Accuracy of every client on its own label distribution; a client without a tested class is left out."""
    tested = np.isfinite(per_class)
    held = counts[:, tested]
    held = held[held.sum(1) > 0]
    accuracies: NDArray[np.float64] = (held * per_class[tested]).sum(1) / held.sum(1)
    return accuracies


def class_and_client_metrics(
    scores: Sequence[Score], samples: NDArray[np.int64], counts: NDArray[np.int64]
) -> dict[str, Any]:
    """Accuracy per class, and its mean, worst decile and variance over clients."""
    per_class = class_accuracies(scores, samples)
    metrics: dict[str, Any] = {"class_accuracy": [None if np.isnan(a) else float(a) for a in per_class]}
    accuracies = np.sort(client_accuracies(counts, per_class))
    if len(accuracies):
        worst = accuracies[: -(-len(accuracies) // 10)]
        metrics["client_accuracy_mean"] = float(accuracies.mean())
        metrics["client_accuracy_worst_decile"] = float(worst.mean())
        metrics["client_accuracy_variance"] = float(accuracies.var())
    return metrics
