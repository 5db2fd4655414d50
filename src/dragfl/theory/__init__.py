"""When Theorem 1 of the DRAG paper covers a run, and what else can be proved about DRAG and BR-DRAG.

    from dragfl import theory

    theory.gamma(c=0.25, x=0.0)           # -3.625: no learning rate is covered
    theory.largest_lr(c=0.01, smoothness=10.0, local_steps=5)
    theory.assess("drag.toml").covered    # with constants measured on the spec's data and model

`dragfl theory SPEC` is the command. docs/theory.md states the theorem, its errata and what the constants are worth.

Parameters
----------
c
    The c of DRAG or BR-DRAG.
x
    eta L U in the theorem; in the properties of an update its cosine with the reference.
form
    The numbers of the theorem: `REPAIRED` (default) or `PRINTED`.
smoothness
    L.
local_steps
    U.
batch_size
    B.
setting
    The settings of a run.
constants
    The constants of its problem.
rounds
    T.
clients
    Number of updates.
norms
    |g| of each update.
cosines
    x of each update.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragfl.theory.assessment import Assessment, assess
    from dragfl.theory.constants import Measurement, measure
    from dragfl.theory.properties import (
        divergence,
        least_progress,
        length,
        perturbation,
        progress,
        residual_step,
        sideways,
        step_amplification,
        worst_cosine,
    )
    from dragfl.theory.theorem import (
        PRINTED,
        REPAIRED,
        Bound,
        Constants,
        Form,
        Setting,
        bound,
        floor,
        gamma,
        largest_c,
        largest_lr,
        largest_x,
    )

_HOME = {
    "Assessment": "dragfl.theory.assessment",
    "Bound": "dragfl.theory.theorem",
    "Constants": "dragfl.theory.theorem",
    "Form": "dragfl.theory.theorem",
    "Measurement": "dragfl.theory.constants",
    "PRINTED": "dragfl.theory.theorem",
    "REPAIRED": "dragfl.theory.theorem",
    "Setting": "dragfl.theory.theorem",
    "assess": "dragfl.theory.assessment",
    "bound": "dragfl.theory.theorem",
    "divergence": "dragfl.theory.properties",
    "floor": "dragfl.theory.theorem",
    "gamma": "dragfl.theory.theorem",
    "largest_c": "dragfl.theory.theorem",
    "largest_lr": "dragfl.theory.theorem",
    "largest_x": "dragfl.theory.theorem",
    "least_progress": "dragfl.theory.properties",
    "length": "dragfl.theory.properties",
    "measure": "dragfl.theory.constants",
    "perturbation": "dragfl.theory.properties",
    "progress": "dragfl.theory.properties",
    "residual_step": "dragfl.theory.properties",
    "sideways": "dragfl.theory.properties",
    "step_amplification": "dragfl.theory.properties",
    "worst_cosine": "dragfl.theory.properties",
}
__all__ = [
    "PRINTED",
    "REPAIRED",
    "Assessment",
    "Bound",
    "Constants",
    "Form",
    "Measurement",
    "Setting",
    "assess",
    "bound",
    "divergence",
    "floor",
    "gamma",
    "largest_c",
    "largest_lr",
    "largest_x",
    "least_progress",
    "length",
    "measure",
    "perturbation",
    "progress",
    "residual_step",
    "sideways",
    "step_amplification",
    "worst_cosine",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'dragfl.theory' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
