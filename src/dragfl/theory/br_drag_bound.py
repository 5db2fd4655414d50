"""What BR-DRAG guarantees in a round, whatever the attackers send.

Of n updates a share beta comes from attackers. With x = cos(g, r), an update contributes to Delta / |r|

    along r:   h(x) = x + c (1 - x)^2, or 0 for a zero update          length:   at most max(1, 4c - 1)

so |Delta| <= |r| for c <= 1/2. The least contribution along r that an attacker can choose is

    min(0, 4c - 1)

for c < 1/4 it is that of a reversed root update. For c > 1/4 every update except the zero update contributes at least
1 - 1/(4c) > 0, so the worst attacker sends zeros. With honest cosines x_i and H = mean h(x_i),

    <Delta, rhat> / |r|  >=  (1 - beta) H - beta max(0, 1 - 4c)

which is positive for beta < beta* = H / (H + max(0, 1 - 4c)). For c >= 1/4 that is every share below 1, since H > 0
unless c = 1/4 and every honest update is exactly opposed to r. Both bounds are attained.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragfl.schedules import check_range
from dragfl.theory.properties import progress


def largest_step(c: float) -> float:
    """The largest |Delta| / |r|, whatever is sent: 1 for c <= 1/2, 4c - 1 above.

    >>> largest_step(0.5), largest_step(1.0)
    (1.0, 3.0)
    """
    check_range("largest_step", "c", c, 0.0, 1.0)
    return max(1.0, 4.0 * c - 1.0)


def largest_pull(c: float, share: float) -> float:
    """The most by which attackers with this share of the updates move the step against the root direction, over |r|.

    >>> round(largest_pull(0.1, 0.4), 6), largest_pull(0.25, 0.9)
    (0.24, 0.0)
    """
    check_range("largest_pull", "c", c, 0.0, 1.0)
    check_range("largest_pull", "share", share, 0.0, 1.0)
    return share * max(0.0, 1.0 - 4.0 * c)


def honest_progress(c: float, cosines: Sequence[float]) -> float:
    """H, the mean contribution of honest updates along the root direction, over |r|."""
    return sum(progress(x, c) for x in cosines) / len(cosines)


def least_root_progress(c: float, share: float, cosines: Sequence[float]) -> float:
    """The least <Delta, rhat> / |r| with this share of attackers and these cosines of the honest updates to the root.

    >>> round(least_root_progress(0.1, 0.4, [0.5, 0.5, 0.5]), 6)  # 0.6 (0.5 + 0.025) - 0.4 0.6
    0.075
    """
    return (1.0 - share) * honest_progress(c, cosines) - largest_pull(c, share)


def tolerated_share(c: float, cosines: Sequence[float]) -> float:
    """The share of attackers below which the step has a positive component along the root update, whatever they send.

    0 if the honest updates alone have none.

    >>> round(tolerated_share(0.1, [0.5, 0.5, 0.5]), 4), tolerated_share(0.25, [0.5, -0.9])
    (0.4667, 1.0)
    """
    honest, pull = honest_progress(c, cosines), largest_pull(c, 1.0)
    return honest / (honest + pull) if honest > 0.0 else 0.0
