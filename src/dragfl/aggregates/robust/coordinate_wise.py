"""Rules that take every coordinate for itself: median, trimmed mean, mean around the median.

Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018
(median, trimmed mean). Xie, Koyejo, Gupta: Generalized Byzantine-tolerant SGD, arXiv 1802.10116, 2018 (mean around
the median).

    median          Delta_j = median_i g_ij                              even n: the mean of the two middle values
    trimmed mean    Delta_j = mean of g_ij without the f largest and the f smallest
    mean around     Delta_j = mean of the n - f values nearest to the median_i g_ij     ties: the lowest index

With f < n/2 the first two stay, in every coordinate, between the least and the largest honest value, and the third
within twice their range, whatever the others send. Suspicion is the distance |g_i - Delta|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dragfl.aggregates.robust.contract import any_number, check_settings, majority
from dragfl.aggregates.robust.ordering import UNREAD, each_column, halfway, mean_of, middle
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.lazy import Tensor, torch


@dataclass(frozen=True)
class Median:
    """Takes the median of every coordinate."""

    name: ClassVar[str] = "median"
    paper: ClassVar[str] = "Yin et al. 2018"

    def columns(self, chunk: Tensor, f: int) -> Tensor:
        low, high = middle(len(chunk))
        classes = [0 if i in (low, high) else UNREAD for i in range(len(chunk))]
        return each_column(chunk, classes, lambda xp, rows, piece: halfway(rows[low], rows[high]))

    least = any_number
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


@dataclass(frozen=True)
class TrimmedMean:
    """Takes the mean of every coordinate without its f largest and f smallest values."""

    f: int | None = None
    name: ClassVar[str] = "trimmed_mean"
    paper: ClassVar[str] = "Yin et al. 2018"

    def __post_init__(self) -> None:
        check_settings(self)

    def columns(self, chunk: Tensor, f: int) -> Tensor:
        n = len(chunk)
        classes = [0 if f <= i < n - f else UNREAD for i in range(n)]
        return each_column(chunk, classes, lambda xp, rows, piece: mean_of(xp, rows[f : n - f]))

    least = majority
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


@dataclass(frozen=True)
class MeaMed:
    """Takes the mean of the n - f values of every coordinate nearest to its median."""

    f: int | None = None
    name: ClassVar[str] = "mea_med"
    paper: ClassVar[str] = "Xie et al. 2018"

    def __post_init__(self) -> None:
        check_settings(self)

    def columns(self, chunk: Tensor, f: int) -> Tensor:
        return mean_around_median(chunk, len(chunk) - f)

    least = majority
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


def mean_around_median(X: Tensor, keep: int) -> Tensor:
    """(b,) mean of the `keep` values of each column nearest to its median; among equally near ones the first rows.

    In sorted order s_0 <= s_1 <= ... the nearest values are neighbours: s_i goes and s_(i + keep) comes as long as the
    one is farther from the median than the other. Two values that are equally far on either side are distinguished
    by their rows, which sorting loses, so those columns are computed again.
    """

    n = len(X)
    drop = n - keep
    if drop == 0:
        return each_column(X, [0] * n, lambda xp, rows, piece: mean_of(xp, rows))
    low, high = middle(n)
    outer = set(range(drop)) | set(range(keep, n))
    classes = [i + 2 if i in outer else (1 if i in (low, high) else 0) for i in range(n)]

    def around(xp: Any, rows: list[Any], piece: Tensor) -> Any:
        m = halfway(rows[low], rows[high])
        below = [m - rows[i] for i in range(drop)]
        above = [rows[i + keep] - m for i in range(drop)]
        gone = [b > a for b, a in zip(below, above, strict=True)]  # s_i is replaced by s_(i + keep)
        total = _total(xp, rows, gone, keep) / keep
        redo = ~xp.isfinite(total)
        for b, a in zip(below, above, strict=True):
            redo |= (b == a) & (b != 0)
        if bool(redo.any()):
            columns = torch.as_tensor(redo).nonzero().flatten()
            total[redo] = xp.asarray(_by_rows(piece[:, columns].double(), keep).to(X.dtype))
        return total

    return each_column(X, classes, around)


def _total(xp: Any, rows: list[Any], gone: list[Any], keep: int) -> Any:
    """The sum of the values kept. Value i is kept if it was not replaced and, from `keep` on, if it came in."""
    drop = len(gone)
    if drop <= keep:
        total = xp.where(gone[0], rows[keep], rows[0])
        for i in range(1, drop):
            xp.add(total, xp.where(gone[i], rows[i + keep], rows[i]), out=total)
        for i in range(drop, keep):
            xp.add(total, rows[i], out=total)
        return total
    total = rows[0] * 0.0
    for i, row in enumerate(rows):
        kept = ~gone[i] if i < drop else gone[0] | True
        if i >= keep:
            kept = kept & gone[i - keep]
        xp.add(total, row * kept, out=total)
    return total


def _by_rows(X: Tensor, keep: int) -> Tensor:
    """The definition itself, in float64: the rows ranked by their distance from the median, then by their number."""
    n = len(X)
    ranked = X.sort(0).values
    median = ranked[(n - 1) // 2] * 0.5 + ranked[n // 2] * 0.5
    order = (X - median).abs().sort(dim=0, stable=True).indices[:keep]
    return (X.gather(0, order) / keep).sum(0)
