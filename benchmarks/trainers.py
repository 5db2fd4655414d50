"""Every trainer on a few shapes: the measurement behind the rules of `training/select.py`.

A run never selects a trainer by timing, since the trainer decides the last bits of a result. The rule depends on the
model alone; this table shows whether it still selects the fastest.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import get_args

import dragfl
from benchmarks.results import Comparison, Contender, on, rows, timed
from benchmarks.timing import Tick, silent
from benchmarks.workloads import LETTERS, PICTURES, Workload
from dragfl.errors import SpecError
from dragfl.training.select import Trainer

FEW = {"clients": 4, "per_round": 4, "steps": 5}

SHAPES = (
    Workload("logistic", "logistic 784-47, B = 20", LETTERS, "logistic", batch=20, **FEW),
    Workload("mlp", "mlp 784-500-47, B = 10", LETTERS, "mlp", batch=10, **FEW),
    Workload("mlp", "mlp 784-500-47, B = 20", LETTERS, "mlp", batch=20, **FEW),
    Workload("mlp", "mlp 784-500-47, B = 100", LETTERS, "mlp", batch=100, **FEW),
    Workload("mlp", "mlp 784-50-47, B = 20", LETTERS, "mlp", batch=20, settings={"hidden": 50}, **FEW),
    Workload("cnn", "cnn 1x28x28, B = 10", LETTERS, "cnn", batch=10, **FEW),
    Workload("cnn", "cnn 3x32x32, B = 20", PICTURES, "cnn", batch=20, **FEW),
    Workload("cnn", "cnn 3x32x32, 16 channels, B = 20", PICTURES, "cnn", batch=20, settings={"channels": 16}, **FEW),
    Workload("resnet", "resnet 3x32x32, B = 20", PICTURES, "resnet", batch=20, **FEW),
)


def measure(repeats: int, tick: Tick = silent, shapes: tuple[Workload, ...] | None = None) -> list[Comparison]:
    """One comparison per shape: rounds of a few clients in one process."""
    return [_compare(workload, repeats, tick) for workload in shapes or SHAPES]


def _compare(workload: Workload, repeats: int, tick: Tick) -> Comparison:
    with ExitStack() as open_:
        able = []
        for trainer in get_args(Trainer):
            try:
                simulation = open_.enter_context(dragfl.simulate(workload.experiment("fedavg", 1, trainer=trainer)))
            except SpecError:  # not for this model
                continue
            if trainer == "auto":
                selected = simulation.experiment.engine.trainer
            else:
                able.append(Contender(trainer, "dragfl", on(1), simulation.step))
        found = timed(able, repeats, lambda who: tick(f"{workload.title}: {who}"))
    reference = next(who for who in able if who.name == "reference")
    made = rows(able, found, {"reference": reference})
    return Comparison("trainers", workload.title, made, ("reference",), repeats, notes=(f"auto: {selected}",))
