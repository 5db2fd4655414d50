"""Every trainer on a few shapes: the measurement behind the rules of `training/choose.py`.

A run never times anything to choose by, since the choice decides the last bits of a result. It goes by the model and
the batch size; this table says whether the rule still picks the fastest.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import get_args

import dragfl
from benchmarks.results import Contender, Panel, on, rows, timed
from benchmarks.timing import Tick, silent
from benchmarks.works import Work
from dragfl.errors import SpecError
from dragfl.training.select import Trainer

_LETTERS, _PICTURES = "benchmarks.works:letters", "benchmarks.works:pictures"
FEW = {"clients": 4, "per_round": 4, "steps": 5}

SHAPES = (
    Work("logistic", "logistic 784-47, B = 20", _LETTERS, "logistic", batch=20, **FEW),
    Work("mlp", "mlp 784-500-47, B = 10", _LETTERS, "mlp", batch=10, **FEW),
    Work("mlp", "mlp 784-500-47, B = 20", _LETTERS, "mlp", batch=20, **FEW),
    Work("mlp", "mlp 784-500-47, B = 100", _LETTERS, "mlp", batch=100, **FEW),
    Work("mlp", "mlp 784-50-47, B = 20", _LETTERS, "mlp", batch=20, settings={"hidden": 50}, **FEW),
    Work("cnn", "cnn 1x28x28, B = 10", _LETTERS, "cnn", batch=10, **FEW),
    Work("cnn", "cnn 3x32x32, B = 20", _PICTURES, "cnn", batch=20, **FEW),
    Work("cnn", "cnn 3x32x32, 16 channels, B = 20", _PICTURES, "cnn", batch=20, settings={"channels": 16}, **FEW),
    Work("resnet", "resnet 3x32x32, B = 20", _PICTURES, "resnet", batch=20, **FEW),
)


def measure(repeats: int, tick: Tick = silent, shapes: tuple[Work, ...] | None = None) -> list[Panel]:
    """A panel for each shape: rounds of a few clients in one process."""
    return [_panel(work, repeats, tick) for work in shapes or SHAPES]


def _panel(work: Work, repeats: int, tick: Tick) -> Panel:
    with ExitStack() as open_:
        able = []
        for trainer in get_args(Trainer):
            try:
                simulation = open_.enter_context(dragfl.simulate(work.experiment("fedavg", 1, trainer=trainer)))
            except SpecError:  # not for this model
                continue
            if trainer == "auto":
                chosen = simulation.experiment.engine.trainer
            else:
                able.append(Contender(trainer, "dragfl", on(1), simulation.step))
        found = timed(able, repeats, lambda who: tick(f"{work.title}: {who}"))
    reference = next(who for who in able if who.name == "reference")
    made = rows(able, found, {"reference": reference})
    return Panel("trainers", work.title, made, ("reference",), repeats, notes=(f"auto: {chosen}",))
