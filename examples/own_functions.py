"""Plain functions as parts: two aggregates and an attack.

    python own_functions.py [ROUNDS]                                    # as objects, from Python
    dragfl check own_functions:trimmed f=2                              # which properties hold
    dragfl arena --quick --defences own_functions:trimmed,own_functions:toward_root --attacks own_functions:opposite

An aggregate is a function of the (n, d) updates of a round that returns the (d,) step; with a parameter `root` it gets
the update of trusted root data too. An attack is a function of the attackers' clean updates, the honest ones and a
numpy generator. All other parameters are settings.
"""

import sys

import numpy as np
from torch import Tensor

import dragfl


def trimmed(updates: Tensor, f: int) -> Tensor:
    """The mean of every coordinate without its f smallest and f largest values.

    `f` is the assumed number of attackers: without a value in the spec it follows from the spec's attackers.
    """
    return updates.sort(0).values[f : len(updates) - f].mean(0)


def toward_root(updates: Tensor, root: Tensor, floor: float = 0.0) -> Tensor:
    """The mean of the updates whose cosine with the root update is above `floor`; the root update if there is none."""
    cosine = (updates @ root) / (updates.norm(dim=1) * root.norm() + 1e-12)
    chosen = updates[cosine > floor]
    return chosen.mean(0) if len(chosen) else root


def opposite(own: Tensor, honest: Tensor, rng: np.random.Generator, scale: float = 1.0) -> Tensor:
    """Every attacker sends the negated mean of the honest updates, with a little noise."""
    noise = 1.0 + 0.1 * rng.normal(size=(len(own), 1))
    return -scale * own.new_tensor(noise) * honest.mean(0)


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for rule in (trimmed, toward_root, "mean"):
        experiment = dragfl.load(
            {
                "rounds": rounds,
                "root": {"size": 100},
                "algorithm": {"aggregate": rule},
                "attack": {"name": opposite, "attackers": 6, "scale": 2.0},
                "model": {"name": "logistic"},
            }
        )
        last = list(dragfl.simulate(experiment))[-1]
        print(f"{experiment.algorithm.name}: accuracy {last.accuracy:.3f} after {last.round} rounds, 6 of 20 malicious")
