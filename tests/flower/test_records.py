"""Records of a reply are claims: what does not agree with what was asked for is refused, and nothing else is raised."""

from __future__ import annotations

import gc
import io
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragfl.flower.client import ClientFailed
from dragfl.flower.records import (
    FLOATS,
    INTEGERS,
    Refused,
    check_finite,
    check_keys,
    one_array_record,
    read_array,
    read_number,
    reply_content,
)
from tests.flower.local_grid import set_identity

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def array(values: NDArray[Any], **claims: Any) -> Array:
    made = Array(values)
    for name, value in claims.items():
        setattr(made, name, value)
    return made


def npy(header: str, body: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + body


def reason(sent: Array, shape: tuple[int, ...] = (2, 3), dtypes: Any = FLOATS) -> str:
    with pytest.raises(Refused) as caught:
        read_array(sent, shape, dtypes, "weight")
    return caught.value.reason


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0, 3), (2, 1, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_was_asked_for_is_read(dtype: str, shape: tuple[int, ...], order: Any) -> None:
    sent = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), dtype, order=order)
    read = read_array(array(sent), shape, FLOATS + INTEGERS, "weight")
    assert read.dtype == sent.dtype and np.array_equal(read, sent)


def test_versions_2_and_3_of_the_format_and_headers_without_padding_are_read() -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}"
    for version in (1, 2, 3):
        data = npy(header, MATRIX.tobytes(), version)
        read = read_array(array(MATRIX, data=data), (2, 3), FLOATS, "weight")
        assert np.array_equal(read, MATRIX) and read.flags.aligned


def test_each_disagreement_has_its_reason() -> None:
    assert reason(array(MATRIX.T)) == "wrong shape"
    assert reason(array(MATRIX[:1], shape=(2, 3))) == "wrong shape"  # the claim is right, the header is not
    assert reason(array(MATRIX, shape=(6,))) == "wrong shape"
    assert reason(array(MATRIX.astype(complex))) == "wrong dtype"
    assert reason(array(MATRIX.astype(complex), dtype="float32")) == "wrong dtype"
    assert reason(array(MATRIX, dtype="float64")) == "wrong dtype"
    assert reason(array(MATRIX.astype(">f4"))) == "wrong dtype"
    assert reason(array(MATRIX.astype(str))) == "wrong dtype"
    assert reason(array(MATRIX.astype(np.int64))) == "wrong dtype"
    assert reason(array(MATRIX, stype="pickle")) == "unreadable array"
    assert reason(array(MATRIX, data=Array(MATRIX).data[:-1])) == "unreadable array"
    assert reason(array(MATRIX, data=Array(MATRIX).data + b"\0")) == "unreadable array"
    assert reason(array(MATRIX, data=b"")) == "unreadable array"


def test_a_pickle_is_not_loaded() -> None:
    class Boom:
        def __reduce__(self) -> Any:
            return pytest.fail, ("unpickled",)

    buffer = io.BytesIO()
    np.save(buffer, np.array([[Boom()] * 3] * 2, dtype=object), allow_pickle=True)
    assert reason(array(MATRIX, data=buffer.getvalue())) == "wrong dtype"


def test_a_huge_header_allocates_nothing() -> None:
    """10^12 values of 8 bytes are claimed; a gigabyte of header is claimed."""
    huge = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }")
    long = b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little")
    tracemalloc.start()
    assert reason(array(MATRIX, data=huge)) == "wrong shape"
    assert reason(array(MATRIX, data=huge, dtype="float64", shape=(10**6, 10**6)), (10**6, 10**6)) == "unreadable array"
    assert reason(array(MATRIX, data=long)) == "unreadable array"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


HEADERS = st.one_of(
    st.text("{}()[]'\",:<>=|-+ .eE0123456789abcdfhiloprstuTFNVSUO_\n\\", max_size=120),
    st.builds(
        "{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}".format,
        st.sampled_from(["<f4", ">f4", "|O", "<U9", "V99999999999", "<f4,<f4", "()f4", "x", "<M8[ns]", "f999999999"]),
        st.sampled_from(["True", "False", "None", "1"]),
        st.sampled_from(["2, 3", "2,3,", "-2, -3", "True, 3", "1e9,", "9" * 30 + ",", "2", "(" * 500, ", ,"]),
    ),
)


@given(st.one_of(st.binary(max_size=200), st.builds(npy, HEADERS, st.binary(max_size=64), st.sampled_from([1, 2, 3]))))
@example(npy("(" * 3000))
@example(npy("-" * 3000 + "1"))
def test_random_bytes_are_refused_or_read_and_nothing_else_is_raised(data: bytes) -> None:
    try:
        read = read_array(array(MATRIX, data=data), (2, 3), FLOATS, "weight")
    except Refused as refused:
        assert refused.reason in ("unreadable array", "wrong shape", "wrong dtype")
    else:
        assert read.shape == (2, 3) and read.dtype in FLOATS


def test_keys_and_records_are_counted() -> None:
    record = ArrayRecord({"b": Array(MATRIX), "a": Array(MATRIX)})
    check_keys(record, ["a", "b"])  # their order is free
    with pytest.raises(Refused, match=r"wrong keys: missing \['c'\], not expected \['b'\]"):
        check_keys(record, ["a", "c"])
    assert one_array_record(RecordDict({"arrays": record, "metrics": MetricRecord({"loss": 1.0})})) is record
    for content in (RecordDict({}), RecordDict({"x": record, "y": record})):
        with pytest.raises(Refused, match="missing record"):
            one_array_record(content)


def test_values_that_are_not_finite_are_refused() -> None:
    check_finite(MATRIX, "weight")
    check_finite(np.array([1, 2]), "counter")
    with pytest.raises(Refused, match="not finite: weight: 2 of 3 values"):
        check_finite(np.array([np.nan, 0.0, -np.inf]), "weight")


@pytest.mark.parametrize("value", [-5, 0, float("nan"), float("inf"), 1e18, 10**400, [3.0], True, "3", None])
def test_a_number_is_real_finite_and_in_range(value: Any) -> None:
    with pytest.raises(Refused, match="bad weight: n = "):
        read_number({"n": value}, "n", 1, 1e12, reason="bad weight")


def test_a_number_in_range_is_read_and_a_missing_one_has_its_default() -> None:
    assert read_number({"n": 3}, "n", 1, 10) == 3.0
    assert read_number({}, "n", 1, 10, default=1.0) == 1.0
    with pytest.raises(Refused, match="bad metric"):
        read_number({}, "n", 1, 10)


def test_a_detail_is_one_short_line() -> None:
    refused = Refused("client error", "a\nb\x1b[31m" + "x" * 10_000)
    assert refused.detail.startswith("a b [31mx") and len(refused.detail) == 300
    with pytest.raises(ValueError, match="unknown reason"):
        Refused("because")


def test_a_content_that_was_read_is_freed_without_a_garbage_collection() -> None:
    """Otherwise a server holds the updates of many nodes at once."""
    content = RecordDict({"arrays": ArrayRecord({"a": array(MATRIX)})})
    freed = weakref.ref(content["arrays"])
    gc.disable()
    try:
        one_array_record(content)
        del content
        assert freed() is None
    finally:
        gc.enable()


def test_the_text_of_an_error_of_dragfls_own_client_has_no_class_before_it() -> None:
    """Its advice would not fit else."""
    set_identity()
    failed = f"{ClientFailed}:<'node-config: state-dir: there is none; {'x' * 100}; give one'>"
    message = Message(RecordDict(), 1, "train")
    with pytest.raises(Refused, match=r"^client error: error 2: <'node-config.*give one'>$"):
        reply_content(Message(Error(2, failed), reply_to=message))
