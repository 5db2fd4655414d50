"""Addressed randomness: a generator is derived from the purpose of its draws, never from earlier draws.

`rng(seed, "batch", round, client)` returns the same draws in any order of calls and in any process. The address is
hashed with a fixed digest (blake2b over a canonical encoding; Python's own `hash` is salted in each process), so a draw
is a pure function of its address.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from dragfl.lazy import torch

Address = int | str


def _encode(part: Address) -> bytes:
    """Type, length, value: different addresses have different encodings."""
    if isinstance(part, bool) or not isinstance(part, int | str | np.integer):
        raise TypeError(f"an address consists of int and str, got {type(part).__name__} {part!r}")
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
    generator = torch.Generator(device=device)
    generator.manual_seed(key(seed, *address, bits=64) & (2**63 - 1))
    return generator
