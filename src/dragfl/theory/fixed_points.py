"""Where DRAG goes on heterogeneous quadratics F_m = |theta - b_m|^2 / 2, with full gradients and all clients.

U local steps move a client by the fraction s = 1 - (1 - eta)^U of its way to b_m, so g_m = s (b_m - theta). The optimum
is the mean of the b_m, and FedAvg converges to it. DRAG with a fixed c > 0 does not:

On a line the reference can only keep its direction or reverse it. Two clients at -1 and 1 and c < 1/4:

    theta* = 2c / (1 - 2c)      on the side to which the model moved last

For c > 1/4 an update opposite to r contributes (4c - 1)|g| along r, and the model moves away for ever.

In two or more dimensions the reference turns, and no update becomes small: the model circles around the optimum. For
small c and b_m on a sphere, with mean zero and the same second moment in every direction of d,

    radius = c q sqrt(s / (alpha + s - alpha s)) |b|,   q = 1 + 1/d,   2 sin(turn/2) = sqrt(alpha s) in every round

A model that moves straight away from all b_m, with r in the same direction, gets longer by the factor
1 + s A a round, A = 4c - 1. A small angle between r and the model is multiplied in every round by

    (1 - alpha + 2 alpha c / A) / (1 + s A)

so this motion is stable, and the model diverges, for s A^2 > alpha (1 - 2c). With k = s / alpha that is

    c > (4k - 1 + sqrt(1 + 8k)) / (16 k)        from 1/2 for k -> 0, 3/8 for k = 1, to 1/4 for k -> infinity

and does not depend on the b_m, nor on d. Between 1/4 and this c the model makes excursions, but comes back: measured
within 1 % for k <= 2.5. For larger k, a reference with a long memory, models are lost a few percent below it.
"""

from __future__ import annotations

import math

from dragfl.schedules import check_range


def local_fraction(lr: float, local_steps: int, curvature: float = 1.0) -> float:
    """s = 1 - (1 - eta a)^U, the part of its way to b_m that a client with curvature a takes in a round.

    >>> round(local_fraction(0.1, 5), 5)
    0.40951
    """
    return 1.0 - (1.0 - lr * curvature) ** local_steps


def line_fixed_point(c: float) -> float:
    """The point to which DRAG converges between two clients at -1 and 1, coming from below; infinity for c > 1/4.

    >>> line_fixed_point(0.1), line_fixed_point(0.25), line_fixed_point(0.3)
    (0.25, 1.0, inf)
    """
    check_range("line_fixed_point", "c", c, 0.0, 1.0)
    return 2.0 * c / (1.0 - 2.0 * c) if c <= 0.25 else math.inf


def divergence_boundary(s: float, alpha: float = 1.0, dim: int = 2) -> float:
    """The c above which the model diverges: 1/4 on a line, (4k - 1 + sqrt(1 + 8k)) / (16k) with k = s/alpha elsewhere.

    For k > 2.5 it diverges a few percent below this value already.

    >>> divergence_boundary(1.0), divergence_boundary(0.3, 1.0, 1)
    (0.375, 0.25)
    """
    check_range("divergence_boundary", "s", s, 0.0, 1.0, open_low=True)
    check_range("divergence_boundary", "alpha", alpha, 0.0, 1.0, open_low=True)
    k = s / alpha
    return 0.25 if dim == 1 else (4.0 * k - 1.0 + math.sqrt(1.0 + 8.0 * k)) / (16.0 * k)


def tilt_factor(c: float, s: float, alpha: float = 1.0) -> float:
    """By how much an angle between r and a model that moves straight away from all clients grows in a round, c > 1/4.

    At the boundary it is 1:

    >>> tilt_factor(0.375, 1.0)
    1.0
    """
    check_range("tilt_factor", "c", c, 0.25, 1.0, open_low=True)
    away = 4.0 * c - 1.0
    return (1.0 - alpha + 2.0 * alpha * c / away) / (1.0 + s * away)


def circle_radius(c: float, s: float, alpha: float = 1.0, dim: int = 2) -> float:
    """The distance of DRAG from the optimum for small c and clients on the unit sphere; it is of first order in c.

    >>> round(circle_radius(0.1, 0.04), 6)  # 0.1 * 3/2 * sqrt(0.04)
    0.03
    """
    check_range("circle_radius", "s", s, 0.0, 1.0, open_low=True)
    check_range("circle_radius", "alpha", alpha, 0.0, 1.0, open_low=True)
    return c * (1.0 + 1.0 / dim) * math.sqrt(s / (alpha + s - alpha * s))


def circle_turn(s: float, alpha: float = 1.0) -> float:
    """The angle in radians by which model and reference turn around the optimum in a round."""
    return 2.0 * math.asin(math.sqrt(s * alpha) / 2.0)
