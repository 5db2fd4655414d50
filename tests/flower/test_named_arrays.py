"""Named arrays as flat vectors and back: kinds, order, dtypes, and integers of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dragfl.errors import SpecError
from dragfl.flower.named_arrays import NamedArrays
from tests.strategies import QUICK


def record(**values: Any) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})


DTYPES = ["float16", "float32", "float64", "int8", "int64", "uint8", "uint64", "bool"]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        elements={"min_value": -99, "max_value": 99, "allow_subnormal": False} if dtype[0] == "f" else None,
    )
)


@QUICK
@given(st.dictionaries(st.text("ab.", min_size=1, max_size=4), arrays, max_size=5))
def test_a_model_that_does_not_move_comes_back_as_it_was(values: dict[str, Any]) -> None:
    """Integers of 64 bits exactly; floats in float32, here without rounding of float16."""
    sent = record(first=np.ones(2, np.float32), **values)
    layout = NamedArrays.of(sent)
    read = layout.read(sent)
    unchanged = layout.moved_integers(read, layout.changes(read, read))
    back = layout.record(layout.vector(read), layout.vector(read, "statistic"), unchanged)
    assert list(back) == list(sent)
    for name, array in sent.items():
        was, now = array.numpy(), back[name].numpy()
        assert now.dtype == was.dtype and now.shape == was.shape
        assert np.array_equal(now, was.astype(np.float32).astype(was.dtype) if was.dtype.kind == "f" else was)
    assert not layout.update(read, read).any()


def test_the_three_kinds() -> None:
    layout = NamedArrays.of(
        record(**{"w": np.zeros((2, 3)), "bn.running_var": np.ones(3), "n": np.array(5), "x.scale": np.ones(4)}),
        ("scale",),
    )
    assert [entry.kind for entry in layout.entries] == ["parameter", "statistic", "integer", "statistic"]
    assert layout.segments == (0, 6)


def test_differences_are_taken_in_the_wider_type() -> None:
    """1e8 + 1 - 1e8 = 1 in float64; float32 would give 0."""
    sent, got = record(w=np.array([1e8])), record(w=np.array([1e8 + 1]))
    layout = NamedArrays.of(sent)
    assert layout.update(layout.read(got), layout.read(sent)).tolist() == [1.0]


@pytest.mark.parametrize(
    ("value", "change", "expected"),
    [
        (np.array(2**40), 3.4, 2**40 + 3),
        (np.array(2**62), 0.2, 2**62),  # no change after rounding: exact
        (np.array(250, np.uint8), 100.0, 255),
        (np.array(-100, np.int8), -100.0, -128),
        (np.array(True), -0.6, False),
        (np.array(7), 1e30, 2**53),
    ],
)
def test_integers_move_by_the_rounded_mean_change(value: Any, change: float, expected: int) -> None:
    sent = record(w=np.zeros(1), n=value)
    layout = NamedArrays.of(sent)
    moved = layout.moved_integers(layout.read(sent), torch.tensor([change]))["n"]
    assert moved == expected and moved.dtype == value.dtype


def test_arrays_of_the_server_that_do_not_fit_are_an_error() -> None:
    layout = NamedArrays.of(record(w=np.zeros(2)))
    for wrong in (record(v=np.zeros(2)), record(w=np.zeros(3)), record(w=np.array([np.nan, 0.0]))):
        with pytest.raises(SpecError, match="the arrays given"):
            layout.read_own(wrong, "the arrays given")
