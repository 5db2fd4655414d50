"""Hypothesis strategies for updates of which some come from anybody, and every rule by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dragfl import functional as fn

Rows = NDArray[Any]
ANY_SIZE = (0.0, 1e-30, 1e-7, 1.0, 1e7, 1e19, 1e30, 3e38)

RULES: dict[str, Callable[[Any, int], Any]] = {
    "median": lambda X, f: fn.median(X),
    "trimmed_mean": fn.trimmed_mean,
    "mea_med": fn.mea_med,
    "krum": fn.krum,
    "multi_krum": fn.multi_krum,
    "bulyan": fn.bulyan,
    "geometric_median": lambda X, f: fn.geometric_median(X),
    "mda": fn.mda,
    "caf": fn.caf,
    "dnc": fn.dnc,
    "sign_guard": lambda X, f: fn.sign_guard(X, fraction=1.0, cluster="k_means"),
    "sign_guard, mean shift": lambda X, f: fn.sign_guard(X, fraction=1.0),
    "flame": lambda X, f: fn.flame(X),
    "flame, local models": lambda X, f: fn.flame(X, space="weights", model=np.full(X.shape[1], 3.0)),
    "fools_gold": lambda X, f: fn.fools_gold(X),
    "rlr": lambda X, f: fn.rlr(X, f + 1.0),
    "norm_clipping": lambda X, f: fn.norm_clipping(X),
    "norm_clipping, radius": lambda X, f: fn.norm_clipping(X, 1.0),
    "centered_clipping": lambda X, f: fn.centered_clipping(X, X[0] * 0, None, 2),
    "centered_clipping, radius": lambda X, f: fn.centered_clipping(X, X[0] * 0, 1.0, 3),
    "nnm": fn.nnm,
    "arc": fn.arc,
    "bucketing": lambda X, f: fn.bucketing(X, 2),
}


def needs(name: str, f: int) -> int:
    """The least number of updates."""
    return {"krum": 2 * f + 3, "multi_krum": 2 * f + 3, "bulyan": 4 * f + 3}.get(name, 2 * f + 1)


@st.composite
def anything(draw: st.DrawFn, dtype: type = np.float32, largest: float = 3.4e38) -> tuple[Rows, int]:
    """(finite rows of any size, f) with n >= 4f + 3."""
    f = draw(st.integers(0, 2))
    n = draw(st.integers(4 * f + 3, 4 * f + 6))
    d = draw(st.integers(1, 4))
    width = 32 if dtype is np.float32 else 64
    numbers = st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, 1e30, -1e30, 1e-30, largest, -largest]).map(lambda x: float(dtype(x))),
        st.floats(-1e3, 1e3, width=width),
        st.floats(float(dtype(-largest)), float(dtype(largest)), width=width),
    )
    return draw(hnp.arrays(dtype, (n, d), elements=numbers)), f


@st.composite
def attacked(draw: st.DrawFn, least: Callable[[int], int]) -> tuple[Rows, Rows, int]:
    """(honest rows, malicious rows of any size, f): at least `least(f)` together, in that order."""
    f = draw(st.integers(0, 3))
    n = draw(st.integers(least(f), least(f) + 3))
    d = draw(st.integers(1, 4))
    small = st.floats(-100.0, 100.0, width=32)
    honest = draw(hnp.arrays(np.float32, (n - f, d), elements=small))
    size = draw(st.sampled_from(ANY_SIZE))
    shape = draw(hnp.arrays(np.float32, (f, d), elements=st.floats(-1.0, 1.0, width=32)))
    near = draw(st.booleans())
    bad = (np.float64(size) * shape).astype(np.float32) + (honest[:1] if near and size < 1e30 else np.float32(0))
    return honest, np.nan_to_num(bad, posinf=3e38, neginf=-3e38), f
