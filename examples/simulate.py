"""Iterate over rounds: compare FedAvg and DRAG on label-sorted digits, and stop each at 85 % accuracy.

    python simulate.py [ROUNDS]

Nothing is written to disk. `step_ratio` is the norm of the aggregated step divided by that of the mean update.
"""

import sys

import dragfl

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100

for algorithm in ({"name": "fedavg"}, {"name": "fedavg", "server_lr": 3.0}, {"name": "drag", "c": 0.25}):
    experiment = dragfl.load(
        {
            "rounds": rounds,
            "data": {"partition": {"kind": "sorted_shards"}},
            "algorithm": algorithm,
            "model": {"name": "mlp", "hidden": 64},
            "evaluation": {"every": 5},
        }
    )
    longest = 0.0
    for record in dragfl.simulate(experiment):
        longest = max(longest, float(record.metrics["step_ratio"]))
        if (record.accuracy or 0.0) >= 0.85:
            break  # the remaining rounds are not computed
    accuracy = "not evaluated" if record.accuracy is None else f"{record.accuracy:.3f}"
    print(f"{algorithm}: round {record.round}, accuracy {accuracy}, largest step ratio {longest:.2f}")
