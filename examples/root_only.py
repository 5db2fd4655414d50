"""What do the clients add? BR-DRAG against `root_only`, which ignores the clients and returns the root update.

    python root_only.py [ROUNDS]

BR-DRAG and FLTrust benefit from their clients only if they are better than this control, where the server trains on its
root data only. The settings are those of `dragfl demo`: 20 clients with label-sorted digits, six of them flip the sign.
"""

import sys

import dragfl

if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for seed in range(3):
        for label, algorithm in (("root only", {"name": "root_only"}), ("BR-DRAG", {"name": "br_drag", "c": 0.5})):
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
