"""Order statistics of every column of an (n, b) block without a full sort: selection networks.

A sorting network is a fixed list of comparators (i, j): put the smaller of rows i and j into i, the larger into j. On
rows of a block it sorts all columns at once, with two vector instructions a comparator and no branch. Only what a rule
asks for is computed: going backwards, a comparator between two rows of one *class* (values that will only be added up,
or thrown away) is left out, and of the others only the halves that are read later are computed.

Batcher: Sorting networks and their applications, AFIPS 1968.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dragfl.lazy import Tensor, torch

WIDTH = 8192  # columns at a time: a row of it stays in the first cache, 40 of them in the second
Step = tuple[int, int, bool, bool]  # rows i < j, and whether the smaller and the larger are read later
Rows = list[Any]  # numpy arrays on the CPU, tensors elsewhere: minimum, maximum, add ... have the same names
Finish = Callable[[Any, Rows, Tensor], Any]  # (numpy or torch, rows after the network, piece of the block) -> (b,)
UNREAD = -1  # the class of rows that are not read


def _batcher(n: int) -> Iterator[tuple[int, int]]:
    """Odd-even merge sort of n rows."""
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                for i in range(j, min(j + k, n - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        yield i, i + k
            k //= 2
        p *= 2


@lru_cache(maxsize=64)
def network(classes: tuple[int, ...]) -> tuple[Step, ...]:
    """The comparators after which rank i of a column is somewhere among the rows of class classes[i].

    A rank that is the only one of its class is in its own row; UNREAD ranks are nowhere.
    """
    kinds, fresh = list(classes), max(classes) + 1
    steps: list[Step] = []
    for i, j in reversed(list(_batcher(len(classes)))):
        if kinds[i] != kinds[j]:
            steps.append((i, j, kinds[i] != UNREAD, kinds[j] != UNREAD))
            kinds[i], kinds[j], fresh = fresh, fresh + 1, fresh + 2
    return tuple(reversed(steps))


def each_column(X: Tensor, classes: Sequence[int], finish: Finish) -> Tensor:
    """(b,) `finish` of the rows of X after the network of these classes, piece by piece of the columns."""
    n, d = X.shape
    steps = network(tuple(classes))
    on_cpu = X.device.type == "cpu"
    xp: Any = np if on_cpu else torch
    rows = X.numpy() if on_cpu else X
    out = torch.empty(d, dtype=X.dtype, device=X.device)
    room = torch.empty(n + 2, min(WIDTH, d), dtype=X.dtype, device=X.device)
    spare: Any = room.numpy() if on_cpu else room
    with np.errstate(all="ignore"):
        for a in range(0, d, WIDTH):
            b = min(a + WIDTH, d)
            sorted_rows = _run(xp, steps, [row[a:b] for row in rows], [row[: b - a] for row in spare])
            done = finish(xp, sorted_rows, X[:, a:b])
            out[a:b] = torch.as_tensor(done)
    return out


def _run(xp: Any, steps: Sequence[Step], rows: Rows, spare: Rows) -> Rows:
    """The rows after the network. They are not written to: results go to spare rows, which then change hands."""
    own = [False] * len(rows)
    for i, j, low, high in steps:
        x, y = rows[i], rows[j]
        rows[i], rows[j] = spare.pop(), spare.pop()
        if low:
            xp.minimum(x, y, out=rows[i])
        if high:
            xp.maximum(x, y, out=rows[j])
        spare += [row for row, mine in ((x, own[i]), (y, own[j])) if mine]
        own[i] = own[j] = True
    return rows


def mean_of(xp: Any, rows: Rows) -> Any:
    """The mean of some rows; finite where they are, though their sum may not be."""
    total = rows[0] + rows[1] if len(rows) > 1 else rows[0] * 1.0
    for row in rows[2:]:
        xp.add(total, row, out=total)
    total /= len(rows)
    if not bool(xp.isfinite(total).all()):
        total = sum(row * (1.0 / len(rows)) for row in rows[1:]) + rows[0] * (1.0 / len(rows))
        end = float(torch.finfo(torch.as_tensor(total).dtype).max)
        total = xp.clip(total, -end, end)
    return total


def middle(n: int) -> tuple[int, int]:
    """The ranks whose mean is the median of n numbers; the same one twice for an odd n."""
    return (n - 1) // 2, n // 2


def halfway(low: Any, high: Any) -> Any:
    """The mean of two rows, without their sum, which may overflow."""
    return low * 1.0 if low is high else low * 0.5 + high * 0.5
