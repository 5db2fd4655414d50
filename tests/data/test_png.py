"""The PNG reader on images with every filter, encoded here line by line."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragfl.data.png import SIGNATURE, read_png
from dragfl.errors import DataError


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def filtered(kind: int, line: np.ndarray, above: np.ndarray) -> bytes:
    """The filters of the specification, pixel by pixel; the reader must undo them."""
    out = np.zeros_like(line)
    for i in range(line.shape[0]):
        for c in range(line.shape[1]):
            a = int(line[i - 1, c]) if i else 0
            b = int(above[i, c])
            d = int(above[i - 1, c]) if i else 0
            p = a + b - d
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - d), 2, d))[2]
            guess = (0, a, b, (a + b) // 2, nearest)[kind]
            out[i, c] = (int(line[i, c]) - guess) % 256
    return bytes([kind]) + out.tobytes()


def make_png(pixels: np.ndarray, kinds: list[int], colour: int, parts: int = 1) -> bytes:
    height, width, _ = pixels.shape
    above = np.zeros_like(pixels[0])
    lines = b""
    for kind, line in zip(kinds, pixels, strict=True):
        lines += filtered(kind, line, above)
        above = line
    packed = zlib.compress(lines)
    cuts = [packed[i * len(packed) // parts : (i + 1) * len(packed) // parts] for i in range(parts)]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", header) + b"".join(chunk(b"IDAT", c) for c in cuts) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("channels", "colour"), [(1, 0), (3, 2), (4, 6), (2, 4)])
@pytest.mark.parametrize("kind", range(5))
def test_each_filter(kind: int, channels: int, colour: int) -> None:
    pixels = np.random.default_rng(kind).integers(0, 256, (4, 5, channels), np.uint8)
    assert (read_png(make_png(pixels, [kind] * 4, colour), "test") == pixels).all()


@given(
    kinds=st.lists(st.integers(0, 4), min_size=1, max_size=7),
    width=st.integers(1, 6),
    seed=st.integers(0, 1000),
    parts=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_mixed_filters(kinds: list[int], width: int, seed: int, parts: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (len(kinds), width, 3), np.uint8)
    assert (read_png(make_png(pixels, kinds, 2, parts), "test") == pixels).all()


GOOD = make_png(np.zeros((2, 2, 3), np.uint8), [0, 1], 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a",
        GOOD[:-5],
        GOOD[:30] + b"\x00" + GOOD[31:],
        SIGNATURE + chunk(b"IEND", b""),
        SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31, 2**31, 8, 2, 0, 0, 0)) + chunk(b"IEND", b""),
        SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)) + chunk(b"IEND", b""),
        SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 3, 0, 0, 0)) + chunk(b"IEND", b""),
        SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)) + chunk(b"IEND", b""),
        SIGNATURE
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\x09a"))
        + chunk(b"IEND", b""),
    ],
)
def test_anything_else_is_a_data_error(data: bytes) -> None:
    with pytest.raises(DataError):
        read_png(data, "test")


def test_more_pixels_than_announced_are_not_decompressed() -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 8, 0, 0, 0, 0))
    bomb = chunk(b"IDAT", zlib.compress(b"\x00" + bytes(50_000_000)))
    assert read_png(SIGNATURE + header + bomb + chunk(b"IEND", b""), "test").tolist() == [[[0], [0]]]
