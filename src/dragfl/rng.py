"""Addressed randomness: a generator is named by where it is used, never by what was drawn before it.

`rng(seed, "batch", round, client)` gives the same draws whatever ran earlier, in whatever order, in whichever
process. The address is hashed with a fixed digest (blake2b over a canonical encoding; Python's own `hash` is salted
per process), so a draw is a pure function of its address.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Address = int | str


def _encode(part: Address) -> bytes:
    """Type, length, value: no two different addresses share an encoding."""
    if isinstance(part, bool) or not isinstance(part, int | str | np.integer):
        raise TypeError(f"an address is made of int and str, got {type(part).__name__} {part!r}")
    kind, text = (b"s", part.encode()) if isinstance(part, str) else (b"i", str(int(part)).encode())
    return kind + str(len(text)).encode() + b":" + text


def key(seed: int, *address: Address, bits: int = 128) -> int:
    """The address as an unsigned integer of `bits` bits."""
    data = b"".join(_encode(part) for part in (seed, *address))
    return int.from_bytes(blake2b(data, digest_size=bits // 8).digest(), "little")


def rng(seed: int, *address: Address) -> np.random.Generator:
    """A fresh NumPy generator (Philox) for this address.

    >>> int(rng(0, "batch", 3, 7).integers(1000)) == int(rng(0, "batch", 3, 7).integers(1000))
    True
    """
    return np.random.Generator(np.random.Philox(key=key(seed, *address)))


def torch_rng(seed: int, *address: Address, device: str = "cpu") -> torch.Generator:
    """A fresh torch generator for this address; torch's global generator is never touched."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(key(seed, *address, bits=64) & (2**63 - 1))
    return generator
