"""Every robust one-shot form with settings that suit seven updates, and what may be said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dragfl import functional as F

FORMS: dict[str, Callable[[Any], Any]] = {
    "median": F.median,
    "trimmed_mean": lambda X: F.trimmed_mean(X, 1),
    "mea_med": lambda X: F.mea_med(X, 1),
    "krum": lambda X: F.krum(X, 1),
    "multi_krum": lambda X: F.multi_krum(X, 1),
    "bulyan": lambda X: F.bulyan(X, 1),
    "geometric_median": F.geometric_median,
    "mda": lambda X: F.mda(X, 1),
    "caf": lambda X: F.caf(X, 1),
    "dnc": lambda X: F.dnc(X, 1, np.random.default_rng(1)),
    "sign_guard": lambda X: F.sign_guard(X, np.random.default_rng(1), share=1.0),
    "flame": lambda X: F.flame(X, np.random.default_rng(1), epsilon=float("inf")),
    "fools_gold": F.fools_gold,
    "rlr": lambda X: F.rlr(X, 2.0),
    "norm_clipping": F.norm_clipping,
    "centered_clipping": lambda X: F.centered_clipping(X, np.zeros_like(X[0]), 1.0, 2),
    "nnm": lambda X: F.nnm(X, 1),
    "arc": lambda X: F.arc(X, 1),
    "bucketing": lambda X: F.bucketing(X, 2, np.random.default_rng(1)),
}
ROWS = ("nnm", "arc", "bucketing")  # give rows, not a step
STEPS = [name for name in FORMS if name not in ROWS]
