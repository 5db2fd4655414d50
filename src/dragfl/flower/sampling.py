"""The nodes of a federation as numbered clients, and which of them take part in a round."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.serverapp import Grid

from dragfl.flower.refusals import LOG
from dragfl.rng import rng

POLL_S = 1.0


@dataclass
class Nodes:
    """Client numbers and names by node id. Nodes are numbered as they appear; new ones by name, then id.

    Node ids are unsigned 64-bit integers, so no tensor holds them; client numbers are small.
    """

    clients: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def online(self, grid: Grid) -> list[int]:
        """The nodes that are connected, by client number. New ones get a number."""
        found = {node.node_id: node.name for node in grid.get_nodes()}
        for node in sorted(found.keys() - self.clients.keys(), key=lambda node: (found[node], node)):
            self.clients[node] = len(self.clients)
            self.names[node] = found[node] or str(node)
        return sorted(found, key=self.clients.__getitem__)

    def sample(
        self, grid: Grid, size_of: Callable[[int], int], least: int, seed: int, purpose: str, t: int
    ) -> list[int]:
        """`size_of(n)` of the n nodes that are connected, by client number; wait for that many and for `least`.

        The draw depends on the seed, the purpose, the round and the numbers of the nodes that are connected.
        """
        waiting = 0
        while len(nodes := self.online(grid)) < max(least, size := size_of(len(nodes))):
            if not waiting % 60:
                LOG.warning("waiting for nodes: %d connected, %d required", len(nodes), max(least, size))
            waiting += 1
            time.sleep(POLL_S)
        drawn = rng(seed, purpose, t).choice(len(nodes), size, replace=False)
        return [nodes[i] for i in sorted(drawn.tolist())]
