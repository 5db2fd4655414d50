"""Hypothesis strategies shared by several tests."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

QUICK = settings(max_examples=50, deadline=None)

# Zero, or a size far enough from the norm floor that scaling by 1000 either way does not cross it.
_numbers = st.one_of(st.just(0.0), st.floats(2.0**-10, 1e3, width=32), st.floats(-1e3, -(2.0**-10), width=32))
strengths = st.floats(0.0, 1.0)  # c
seeds = st.integers(0, 2**32 - 1)


@st.composite
def cohorts(
    draw: st.DrawFn, *, rows: tuple[int, int] = (1, 6), columns: tuple[int, int] = (1, 6), dtype: type = np.float64
) -> tuple[Tensor, Tensor]:
    """((n, d) updates, some of them perhaps zero; a (d,) reference that is not zero)."""
    n, d = draw(st.integers(*rows)), draw(st.integers(*columns))
    X = draw(hnp.arrays(dtype, (n, d), elements=_numbers))
    r = draw(hnp.arrays(dtype, d, elements=_numbers).filter(lambda v: bool(np.abs(v).max() > 0)))
    return torch.from_numpy(X), torch.from_numpy(r)


@st.composite
def cuts(draw: st.DrawFn, n: int) -> list[slice]:
    """Consecutive blocks that make up n rows."""
    inner = draw(st.sets(st.integers(1, n - 1))) if n > 1 else set()
    edges = [0, *sorted(inner), n]
    return [slice(a, b) for a, b in pairwise(edges)]
