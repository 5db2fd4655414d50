"""Every robust one-shot form with settings that suit seven updates, and what may be said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dragfl import functional as fn

FORMS: dict[str, Callable[[Any], Any]] = {
    "median": fn.median,
    "trimmed_mean": lambda X: fn.trimmed_mean(X, 1),
    "mea_med": lambda X: fn.mea_med(X, 1),
    "krum": lambda X: fn.krum(X, 1),
    "multi_krum": lambda X: fn.multi_krum(X, 1),
    "bulyan": lambda X: fn.bulyan(X, 1),
    "geometric_median": fn.geometric_median,
    "mda": lambda X: fn.mda(X, 1),
    "caf": lambda X: fn.caf(X, 1),
    "dnc": lambda X: fn.dnc(X, 1, np.random.default_rng(1)),
    "sign_guard": lambda X: fn.sign_guard(X, np.random.default_rng(1), fraction=1.0),
    "flame": lambda X: fn.flame(X, np.random.default_rng(1), epsilon=float("inf")),
    "fools_gold": fn.fools_gold,
    "rlr": lambda X: fn.rlr(X, 2.0),
    "norm_clipping": fn.norm_clipping,
    "centered_clipping": lambda X: fn.centered_clipping(X, np.zeros_like(X[0]), 1.0, 2),
    "nnm": lambda X: fn.nnm(X, 1),
    "arc": lambda X: fn.arc(X, 1),
    "bucketing": lambda X: fn.bucketing(X, 2, np.random.default_rng(1)),
}
ROWS = ("nnm", "arc", "bucketing")  # give rows, not a step
STEPS = [name for name in FORMS if name not in ROWS]
