"""What do the clients add? BR-DRAG and Cone DRAG against `root_only`, which ignores the clients.

    python root_only.py [ROUNDS]

A rule with root data benefits from its clients only if it is better than this control, where the server trains on its
root data only. Cone DRAG has server momentum 0.9, so its control has the same. The settings are those of `dragfl demo`:
20 clients with label-sorted digits, six of them flip the sign.
"""

import sys

import dragfl

ALGORITHMS = {
    "root only": {"name": "root_only"},
    "BR-DRAG": {"name": "br_drag", "c": 0.5},
    "root only, momentum": {"name": "root_only", "server": {"name": "momentum", "beta": 0.9}},
    "Cone DRAG": {"name": "cone_drag"},
}

if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for seed in range(3):
        for label, algorithm in ALGORITHMS.items():
            experiment = dragfl.load(
                {
                    "seed": seed,
                    "rounds": rounds,
                    "data": {"partition": {"kind": "sorted_shards"}},
                    "root": {"size": 100},
                    "algorithm": algorithm,
                    "attack": {"name": "sign_flip", "attackers": 6},
                    "model": {"name": "mlp", "hidden": 64},
                    "evaluation": {"every": 5},
                }
            )
            best = max(record.accuracy or 0.0 for record in dragfl.simulate(experiment))
            print(f"seed {seed}, {label}: best accuracy {best:.3f} in {rounds} rounds")
