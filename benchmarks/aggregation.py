"""`functional.drag` on 40 updates of 416,047 numbers, against one read of them (`x.sum()`), same thread count."""

from __future__ import annotations

import torch

from dragfl import functional
from timing import interleave


def measure(threads: int, repeats: int = 25) -> dict[str, float]:
    """Median seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        draws = torch.Generator().manual_seed(0)
        x = torch.randn(40, 416_047, generator=draws)
        r = torch.randn(416_047, generator=draws)
        return interleave(
            {
                "one read": lambda: x.sum(),
                "drag": lambda: functional.drag(x, r, 0.25),
                "br_drag": lambda: functional.br_drag(x, r, 0.25),
                "fltrust": lambda: functional.fltrust(x, r),
                "mean": lambda: functional.mean(x),
            },
            repeats,
        )
    finally:
        torch.set_num_threads(before)
