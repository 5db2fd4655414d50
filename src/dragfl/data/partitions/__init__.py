"""Partitions of the training data over clients: pure functions from (labels, clients, rng) to a split.

Every sample is assigned at most once, and an empty client is an error. Only the clients of `resampled` overlap.

Parameters
----------
dataset
    Its training samples are assigned.
partition
    How they are assigned.
split
    The samples of every client.
labels
    (n,) int64 labels of the training samples.
classes
    Number of classes.
clients
    Number of clients; for `label_counts` the clients that are counted, default all.
rng
    A numpy Generator for the random draws.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions.by_group import ByGroup
from dragfl.data.partitions.by_label import LabelGroup, LabelMod
from dragfl.data.partitions.dirichlet import DirichletClass, DirichletClient, QuantitySkew
from dragfl.data.partitions.resampled import Resampled, VirtualSplit
from dragfl.data.partitions.shards import IID, GammaSimilarity, Shards, SortedShards
from dragfl.data.partitions.split import ClientSplit, Partition, Split, checked_split
from dragfl.data.partitions.summary import Summary, label_counts, summarize_split
from dragfl.own_code import is_own, name_of, named_errors

if TYPE_CHECKING:
    from dragfl.data.dataset import Dataset


PARTITIONS: dict[str, type[Partition]] = {
    "iid": IID,
    "sorted_shards": SortedShards,
    "label_mod": LabelMod,
    "label_group": LabelGroup,
    "shards": Shards,
    "dirichlet_class": DirichletClass,
    "dirichlet_client": DirichletClient,
    "quantity_skew": QuantitySkew,
    "gamma_similarity": GammaSimilarity,
    "by_group": ByGroup,
    "resampled": Resampled,
}


def partition_dataset(
    dataset: Dataset,
    partition: Partition,
    clients: int,
    rng: np.random.Generator,
    rows: NDArray[np.int64] | None = None,
) -> ClientSplit:
    """Assign the training samples of a dataset to clients; with `rows`, only those samples."""
    labels = dataset.y.cpu().numpy()
    groups = None if dataset.groups is None else dataset.groups.cpu().numpy()
    if rows is not None:
        labels = labels[rows]
        groups = None if groups is None else groups[rows]
    if getattr(partition, "uses_groups", False):
        arguments: tuple[Any, ...] = (labels, clients, rng, groups)
    else:
        arguments = (labels, clients, rng)
    if is_own(partition):
        with named_errors(name_of(partition)):
            split = checked_split(name_of(partition), partition(*arguments), len(labels), clients)
    else:
        split = partition(*arguments)
    return split if rows is None else _map_rows(split, rows)


def _map_rows(split: ClientSplit, rows: NDArray[np.int64]) -> ClientSplit:
    """Replace positions in `rows` by positions in the dataset."""
    if isinstance(split, VirtualSplit):
        return replace(split, by_class=rows[split.by_class])
    if isinstance(split, Split):
        return Split(rows[split.indices], split.offsets)
    return Split.from_parts([rows[split.samples_of(m)] for m in range(split.clients)])


__all__ = [
    "IID",
    "PARTITIONS",
    "ByGroup",
    "ClientSplit",
    "DirichletClass",
    "DirichletClient",
    "GammaSimilarity",
    "LabelGroup",
    "LabelMod",
    "Partition",
    "QuantitySkew",
    "Resampled",
    "Shards",
    "SortedShards",
    "Split",
    "Summary",
    "VirtualSplit",
    "label_counts",
    "partition_dataset",
    "summarize_split",
]
