"""The kinds of bad replies that were tried on a real federation, as changes of a good reply.

With Flower's FedAvg 13 of them end the run, 3 make the model NaN and 4 enter it. `REASONS` has what dragfl counts them
as; None: the reply is used. `doubled`, `raised` and `gone` are no change of a reply: a grid or an app does them.

    grid.tamper = only(node_id, BAD_REPLIES["nan"])
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

Change = Callable[[Message], Message]
WEIGHT = "num-examples"


def only(node: int, change: Change) -> Change:
    """Change the replies of one node."""
    return lambda reply: change(reply) if reply.metadata.src_node_id == node else reply


def _first_array(change: Callable[[NDArray[Any]], Array | NDArray[Any]]) -> Change:
    """Change the first floating-point array of the reply."""

    def changed(reply: Message) -> Message:
        record = next(iter(reply.content.array_records.values()))
        name = next(name for name, array in record.items() if "float" in array.dtype)
        made = change(record[name].numpy().copy())
        record[name] = made if isinstance(made, Array) else Array(made)
        return reply

    return changed


def _metric(value: float) -> Change:
    def changed(reply: Message) -> Message:
        next(iter(reply.content.metric_records.values()))[WEIGHT] = value
        return reply

    return changed


def _set(index: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def changed(values: NDArray[Any]) -> NDArray[Any]:
        values.reshape(-1)[0] = index
        return values

    return changed


def _with_data(values: NDArray[Any], data: bytes) -> Array:
    """An array whose claims are right and whose data are not."""
    return Array(str(values.dtype), tuple(values.shape), "numpy.ndarray", data)


def _huge(values: NDArray[Any]) -> Array:
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }\n"
    return _with_data(values, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


class _Bomb:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('a reply was unpickled')",)


def _pickle(values: NDArray[Any]) -> Array:
    buffer = io.BytesIO()
    np.save(buffer, np.full(values.shape, _Bomb(), dtype=object), allow_pickle=True)
    return _with_data(values, buffer.getvalue())


def _extra_key(reply: Message) -> Message:
    next(iter(reply.content.array_records.values()))["extra"] = Array(np.zeros(2, np.float32))
    return reply


def _missing_key(reply: Message) -> Message:
    record = next(iter(reply.content.array_records.values()))
    del record[next(iter(record))]
    return reply


def _no_arrays(reply: Message) -> Message:
    for name in list(reply.content.array_records):
        del reply.content[name]
    return reply


def _two_records(reply: Message) -> Message:
    reply.content["second"] = ArrayRecord(dict(next(iter(reply.content.array_records.values()))))
    return reply


def _no_metrics(reply: Message) -> Message:
    for name in list(reply.content.metric_records):
        del reply.content[name]
    return reply


def _extra_metric(reply: Message) -> Message:
    next(iter(reply.content.metric_records.values()))["extra-metric"] = 0.5
    return reply


def reordered_keys(reply: Message) -> Message:
    name, record = next(iter(reply.content.array_records.items()))
    reply.content[name] = ArrayRecord(dict(reversed(list(record.items()))))
    name, metrics = next(iter(reply.content.metric_records.items()))
    reply.content[name] = MetricRecord(dict(reversed(list(metrics.items()))))
    return reply


BAD_REPLIES: dict[str, Change] = {
    "wrong shape": _first_array(lambda values: np.zeros((*values.shape, 2), values.dtype)),
    "complex": _first_array(lambda values: values.astype(np.complex64)),
    "string": _first_array(lambda values: values.astype(str)),
    "extra key": _extra_key,
    "missing key": _missing_key,
    "no arrays": _no_arrays,
    "two array records": _two_records,
    "no metrics": _no_metrics,
    "extra metric": _extra_metric,
    "lying header": _first_array(lambda values: _with_data(values, Array(np.zeros(3)).data)),
    "garbage": _first_array(lambda values: _with_data(values, b"\x00garbage" * 20)),
    "huge header": _first_array(_huge),
    "pickle": _first_array(_pickle),
    "nan": _first_array(_set(float("nan"))),
    "inf": _first_array(_set(float("inf"))),
    "nan weight": _metric(float("nan")),
    "one value": _first_array(lambda values: np.ones(1, values.dtype)),
    "weight -5": _metric(-5.0),
    "weight 1e18": _metric(1e18),
}
BY_GRID = ("doubled", "raised", "gone")

REASONS: dict[str, str | None] = {
    "wrong shape": "wrong shape",
    "complex": "wrong dtype",
    "string": "wrong dtype",
    "extra key": "wrong keys",
    "missing key": "wrong keys",
    "no arrays": "missing record",
    "two array records": "missing record",
    "no metrics": None,
    "extra metric": None,
    "lying header": "wrong shape",
    "garbage": "unreadable array",
    "huge header": "wrong shape",
    "pickle": "wrong dtype",
    "nan": "not finite",
    "inf": "not finite",
    "nan weight": "bad weight",
    "one value": "wrong shape",
    "weight -5": "bad weight",
    "weight 1e18": "bad weight",
    "doubled": "doubled",
    "raised": "client error",
    "gone": "offline",
}
