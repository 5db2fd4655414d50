"""A reader of plain PNG images (8 bits, grey, RGB or RGBA, not interlaced), so that no image library is needed.

Portable Network Graphics Specification, third edition, W3C 2025: sections 5 (chunks) and 9 (filters).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dragfl.errors import DataError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # colour type -> samples per pixel
LIMIT = 1 << 28  # bytes of one decoded image


def _chunks(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    if data[:at] != SIGNATURE:
        raise DataError(f"{name}: not a PNG file; download it again")
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        body = data[at + 4 : at + 8 + length]
        if data[at + 8 + length : at + 12 + length] != struct.pack(">I", zlib.crc32(body)):
            break
        yield body[:4], body[4:]
        if body[:4] == b"IEND":
            return
        at += 12 + length
    raise DataError(f"{name}: damaged PNG file (at byte {at}); download it again")


def read_png(data: bytes, name: str) -> NDArray[np.uint8]:
    """Decode a PNG file to (height, width, channels) pixels."""
    header, packed = b"", bytearray()
    for kind, body in _chunks(data, name):
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed += body
    if len(header) != 13:
        raise DataError(f"{name}: PNG file without a header; download it again")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    channels = CHANNELS.get(colour, 0)
    size = height * (1 + width * channels)
    if depth != 8 or not channels or interlaced or not 0 < size <= LIMIT:
        raise DataError(f"{name}: {width}x{height}, depth {depth}, colour type {colour}: unsupported PNG format")
    try:
        raw = zlib.decompressobj().decompress(bytes(packed), size)
    except zlib.error as error:
        raise DataError(f"{name}: damaged PNG file ({error}); download it again") from None
    if len(raw) != size:
        raise DataError(f"{name}: {len(raw)} bytes of pixels, expected {size}; download it again")
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    if lines[:, 0].max() > 4:
        raise DataError(f"{name}: unknown PNG filter {int(lines[:, 0].max())}; download it again")
    return _unfilter(lines[:, 0], lines[:, 1:].reshape(height, width, channels).copy())


def _unfilter(kinds: NDArray[np.uint8], pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo the filter of each line, in place, modulo 256. Filters 0 and 1 do not depend on other lines."""
    left = kinds == 1
    pixels[left] = np.cumsum(pixels[left], axis=1, dtype=np.uint8)
    zero = np.zeros_like(pixels[0])
    for row in np.flatnonzero(kinds >= 2):
        above = pixels[row - 1] if row else zero
        if kinds[row] == 2:
            pixels[row] += above
        else:
            pixels[row] = _pixel_by_pixel(int(kinds[row]), pixels[row], above)
    return pixels


def _pixel_by_pixel(kind: int, line: NDArray[np.uint8], above: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo filter 3 (mean of left and above) or 4 (Paeth: of left, above, upper left the nearest to a + b - c)."""
    channels = line.shape[1]
    out, up = line.ravel().tolist(), above.ravel().tolist()
    for i in range(len(out)):
        a, c = (out[i - channels], up[i - channels]) if i >= channels else (0, 0)
        b = up[i]
        if kind == 3:
            guess = (a + b) // 2
        else:
            to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            guess = a if to_a <= to_b and to_a <= to_c else b if to_b <= to_c else c
        out[i] = (out[i] + guess) & 255
    return np.array(out, np.uint8).reshape(line.shape)
