"""What DRAG and BR-DRAG do to one update, exactly.

With x = cos(g, r), lambda = c (1 - x), unit vectors ghat and rhat, and s = |g| (DRAG) or |r| (BR-DRAG),

    v = s [(1 - lambda) ghat + lambda rhat]

and every function here gives a quantity divided by s. That the rules are homogeneous, invariant to permutations and
equivariant under rotations has no number; tests/theory/test_properties.py checks it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def divergence(x: float, c: float) -> float:
    """lambda = c (1 - x), in [0, 2c]."""
    return c * (1 - x)


def progress(x: float, c: float) -> float:
    """<v, rhat> / s = x + c (1 - x)^2: at least x, and equal to it only at x = 1."""
    return x + c * (1 - x) ** 2


def length(x: float, c: float) -> float:
    """|v| / s = sqrt(1 - 2 lambda (1 - lambda)(1 - x)): at most 1 exactly where lambda <= 1 or x = 1."""
    lam = divergence(x, c)
    return math.sqrt(max(0.0, 1 - 2 * lam * (1 - lam) * (1 - x)))


def sideways(x: float, c: float) -> float:
    """The component of v orthogonal to r, divided by s: (1 - lambda) sqrt(1 - x^2); negative where g is reversed."""
    return (1 - divergence(x, c)) * math.sqrt(max(0.0, 1 - x * x))


def perturbation(x: float, c: float) -> float:
    """|v - s ghat| / s = sqrt(2) c (1 - x)^(3/2): at most 4c.

    For DRAG this is the whole effect of dragging: |v - g| / |g|.
    """
    return math.sqrt(2) * c * (1 - x) * math.sqrt(1 - x)


def worst_cosine(c: float) -> float:
    """The cosine x at which an update contributes least along r: -1 for c <= 1/4, else 1 - 1/(2c)."""
    return -1.0 if c <= 0.25 else 1 - 1 / (2 * c)


def least_progress(c: float) -> float:
    """The least <v, rhat> / s over all updates: 4c - 1 for c <= 1/4, else 1 - 1/(4c).

    No update pulls against r if and only if c >= 1/4. An exact reversal, x = -1, contributes 4c - 1.
    """
    return 4 * c - 1 if c <= 0.25 else 1 - 1 / (4 * c)


def step_amplification(clients: int, c: float) -> float:
    """|Delta| / |mean g| for orthogonal updates of equal norm with r along their mean: 1 + c (sqrt S - 1)^2 / sqrt S.

    >>> round(step_amplification(40, 0.25), 3)
    2.121
    """
    root = math.sqrt(clients)
    return 1 + c * (root - 1) ** 2 / root


def residual_step(c: float, norms: Sequence[float], cosines: Sequence[float]) -> float:
    """<Delta, rhat> where the updates sum to zero, c mean(|g| (1 - x)^2): at least c mean |g|.

    So DRAG with a fixed c does not rest where the mean of the updates is zero.
    """
    return c * sum(s * (1 - x) ** 2 for s, x in zip(norms, cosines, strict=True)) / len(norms)
