"""How samples are dealt to clients: pure functions of (labels, clients, rng) to a split.

Every sample is used at most once and no client is left empty without an error; `resampled` alone overlaps, by
design.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dragfl.data.partitions.by_group import ByGroup
from dragfl.data.partitions.by_label import LabelGroup, LabelMod
from dragfl.data.partitions.dirichlet import DirichletClass, DirichletClient
from dragfl.data.partitions.quantity import QuantitySkew
from dragfl.data.partitions.resampled import Resampled, VirtualSplit
from dragfl.data.partitions.shards import IID, GammaSimilarity, Shards, SortedShards
from dragfl.data.partitions.split import ClientSplit, Partition, Split
from dragfl.data.partitions.summary import Summary, label_counts, summarize_split

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """The training samples of a dataset dealt to clients; with `rows`, only those the root set left over."""
    labels = dataset.y.cpu().numpy()
    groups = None if dataset.groups is None else dataset.groups.cpu().numpy()
    if rows is not None:
        labels = labels[rows]
        groups = None if groups is None else groups[rows]
    if getattr(partition, "wants_groups", False):
        split: ClientSplit = partition(labels, clients, rng, groups)  # type: ignore[call-arg]
    else:
        split = partition(labels, clients, rng)
    return split if rows is None else _translate(split, rows)


def _translate(split: ClientSplit, rows: NDArray[np.int64]) -> ClientSplit:
    """Positions among `rows` become positions in the dataset."""
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
