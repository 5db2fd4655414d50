"""Check the records of a reply. What a client sends is a claim until it is checked; nothing is ever unpickled.

`Array.dtype` and `Array.shape` are written by the sender, and so is the npy header inside `Array.data`. Both, and the
length of the data, are compared with what was asked for before anything is allocated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

MAX_HEADER = 1024  # bytes of an npy header; that of a matrix has 128
HEADER = re.compile(
    rb"\s*\{\s*'descr'\s*:\s*'([<>|=]?[a-zA-Z?]\d{0,9})'\s*,\s*'fortran_order'\s*:\s*(True|False)\s*,"
    rb"\s*'shape'\s*:\s*\(((?:\s*\d{1,18}\s*,)*\s*(?:\d{1,18})?\s*)\)\s*,?\s*\}\s*"
)
MAX_DETAIL = 300  # characters of a detail: it may quote what a client has written
MAX_EXAMPLES = 1e12  # a larger number of training examples is no honest weight

SUPERLINK_ERRORS = {3: "no reply", 4: "no reply", 5: "offline"}  # the time of a message or its reply is over; node gone

CLIENT_FAILED = "<class 'dragfl.flower.client.ClientFailed'>:"  # Flower puts it before the text of dragfl's own client

FLOATS = tuple(np.dtype(kind) for kind in ("float16", "float32", "float64"))
INTEGERS = tuple(
    np.dtype(kind) for kind in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
)

REASONS = (
    "client error",
    "no reply",
    "offline",
    "missing record",
    "wrong keys",
    "wrong shape",
    "wrong dtype",
    "unreadable array",
    "not finite",
    "bad weight",
    "bad metric",
    "norm above max_norm",
    "stale",
    "doubled",
    "unknown node",
    "state lost",
)


class Refused(Exception):
    """A reply that is left out. It never reaches the model and never ends the run.

    `reason` is one of `REASONS`, the key under which refusals are counted; `detail` has the value seen, on one line.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        if reason not in REASONS:
            raise ValueError(f"unknown reason {reason!r}; give one of {', '.join(REASONS)}")
        self.reason, self.detail = reason, one_line(detail)
        super().__init__(f"{reason}: {self.detail}" if self.detail else reason)


def one_line(text: str) -> str:
    """A text that another machine has written, for logs and terminals: without control characters, and not too long."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_DETAIL])
    return " ".join(printable.split())[:MAX_DETAIL]


def reply_content(reply: Message) -> RecordDict:
    """The content of a reply; raise `Refused` where it is an error of the client or of Flower."""
    if reply.has_error():
        reason = SUPERLINK_ERRORS.get(reply.error.code, "client error")
        raise Refused(reason, f"error {reply.error.code}: {(reply.error.reason or '').removeprefix(CLIENT_FAILED)}")
    if not reply.has_content():
        raise Refused("missing record", "the reply is empty")
    return reply.content


def one_array_record(content: RecordDict) -> ArrayRecord:
    """The only ArrayRecord of a reply."""
    # content.array_records and content refer to each other: the arrays would stay until the next garbage collection
    found = [record for record in content.values() if isinstance(record, ArrayRecord)]
    if len(found) != 1:
        raise Refused("missing record", f"{len(found)} ArrayRecords; 1 was expected")
    return found[0]


def check_keys(record: Mapping[str, Any], expected: Collection[str]) -> None:
    """Raise `Refused` unless the record has exactly these keys, in any order."""
    if set(record) != set(expected):
        missing, extra = sorted(set(expected) - set(record)), sorted(set(record) - set(expected))
        raise Refused("wrong keys", f"missing {missing[:3]}, not expected {extra[:3]}")


def read_array(array: Array, shape: tuple[int, ...], dtypes: Collection[np.dtype[Any]], name: str) -> NDArray[Any]:
    """The array of this shape and one of these dtypes, as a read-only view of the bytes received.

    Nothing is allocated before the claims, the header and the length of the data agree with what was asked for.
    """
    if array.stype != "numpy.ndarray":
        raise Refused("unreadable array", f"{name}: serialized as {array.stype}")
    if tuple(array.shape) != shape:
        raise Refused("wrong shape", f"{name}: {_short(array.shape)} instead of {shape}")
    dtype, fortran, start = _read_header(array.data, shape, dtypes, name)
    if array.dtype not in (str(dtype), dtype.str):
        raise Refused("wrong dtype", f"{name}: claims {array.dtype}, its header says {dtype}")
    size = math.prod(shape)
    if len(array.data) != start + size * dtype.itemsize:
        raise Refused("unreadable array", f"{name}: {len(array.data) - start} bytes instead of {size * dtype.itemsize}")
    if not size:
        return np.empty(shape, dtype)
    flat = np.frombuffer(array.data, dtype, size, start)
    values = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    return np.require(values, requirements="A")


def _read_header(
    data: bytes, shape: tuple[int, ...], dtypes: Collection[np.dtype[Any]], name: str
) -> tuple[np.dtype[Any], bool, int]:
    """(dtype, whether the order is Fortran's, where the values start) of npy bytes of this shape."""
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4, b"\x93NUMPY\x03\x00": 4}.get(bytes(data[:8]))
    if width is None:
        raise Refused("unreadable array", f"{name}: no npy data")
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if start > min(len(data), MAX_HEADER):
        raise Refused("unreadable array", f"{name}: a header of {start} bytes, {len(data)} in all")
    match = HEADER.fullmatch(data[8 + width : start])
    if match is None:
        raise Refused("unreadable array", f"{name}: its npy header cannot be read")
    try:
        dtype = np.dtype(match[1].decode())
    except (TypeError, ValueError):
        raise Refused("wrong dtype", f"{name}: {match[1].decode()}") from None
    found = tuple(int(size) for size in match[3].split(b",") if size.strip())
    if found != shape:
        raise Refused("wrong shape", f"{name}: its header says {_short(found)} instead of {shape}")
    if dtype not in dtypes:  # the byte order is part of a dtype
        raise Refused("wrong dtype", f"{name}: {dtype.str} is none of {', '.join(str(d) for d in dtypes)}")
    return dtype, match[2] == b"True", start


def check_finite(values: NDArray[Any], name: str) -> None:
    """Raise `Refused` where a NaN or an infinity is among the values."""
    if not np.isfinite(values).all():
        bad = int(values.size - np.isfinite(values).sum())
        raise Refused("not finite", f"{name}: {bad} of {values.size} values are NaN or infinite")


def read_number(
    metrics: Mapping[str, Any],
    name: str,
    low: float,
    high: float,
    default: float | None = None,
    reason: str = "bad metric",
) -> float:
    """A finite real number in [low, high]; `default` where there is none of that name and a default is given."""
    if name not in metrics and default is not None:
        return default
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(reason, f"{name} = {_short(value)}; expected a number in [{low:g}, {high:g}]")
    return float(value)


def _short(value: object) -> str:
    """A value that a client has sent, quoted without building a long text first."""
    if isinstance(value, list | tuple) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)} values"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)[:MAX_DETAIL]
