"""The degree of divergence: how far an update points away from the reference direction.

With x = cos(g, r), the paper starts from the angle arccos(x) / (pi/2) and names two linear surrogates:

    linear   c (1 - x)            arccos x ~ pi/2 - (pi/2) x     the paper's choice; exact at x = 0 and x = 1
    angle    c (2/pi) arccos x    no approximation
    shallow  c (1 - 2x/pi)        arccos x ~ pi/2 - x            the tangent at x = 0; not 0 at x = 1
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from dragfl.lazy import Tensor
from dragfl.schedules import check_choice

Divergence = Literal["linear", "angle", "shallow"]


def degree(cosine: Tensor, c: float, kind: Divergence = "linear") -> Tensor:
    """lambda for each cosine, in [0, 2c]."""
    check_choice("divergence", "kind", kind, get_args(Divergence))
    if kind == "angle":
        return cosine.arccos() * (2.0 * c / math.pi)
    if kind == "shallow":
        return (1.0 - cosine * (2.0 / math.pi)) * c
    return (1.0 - cosine) * c
