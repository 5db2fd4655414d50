"""Natural clients (by_group), for example one client per writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions.split import Split, check_clients
from dragfl.errors import DataError


@dataclass(frozen=True)
class ByGroup:
    """Every group of the dataset (`Dataset.groups`: writer, device, site) goes to one client as a whole.

    With as many clients as groups, client m is the m-th group; with fewer, groups are assigned at random, and the
    numbers of groups per client differ by at most one.
    """

    uses_groups: ClassVar[bool] = True

    def __call__(
        self,
        labels: NDArray[np.int64],
        clients: int,
        rng: np.random.Generator,
        groups: NDArray[np.int64] | None = None,
    ) -> Split:
        check_clients("by_group", labels, clients)
        if groups is None:
            raise DataError(
                "data.partition: by_group: the dataset has no groups; give Dataset(groups=...) or an npz with a "
                "`groups` column, one number for each training sample, or a text with headings"
            )
        if len(groups) != len(labels):
            raise DataError(
                f"data.partition: by_group: {len(groups)} groups for {len(labels)} samples; give one for each"
            )
        names, member = np.unique(groups, return_inverse=True)
        if clients > len(names):
            raise DataError(
                f"data.partition: by_group: {clients} clients but only {len(names)} groups; set clients.total to "
                f"{len(names)} or fewer"
            )
        owner_of_group = np.arange(len(names)) % clients
        if clients < len(names):
            owner_of_group = rng.permutation(owner_of_group)
        return Split.from_owner(owner_of_group[member.reshape(-1)], clients)
