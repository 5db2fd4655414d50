"""Draws depend on their address alone."""

from __future__ import annotations

import random
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragfl.rng import key, rng, torch_rng
from dragfl.types import RoundContext
from tests.strategies import QUICK

parts = st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=6))
addresses = st.lists(parts, max_size=4).map(tuple)


def test_first_draws_are_pinned() -> None:
    """A change of these numbers changes the results of every experiment."""
    assert rng(0, "batch", 3, 7).integers(0, 1000, 5).tolist() == [759, 95, 140, 927, 243]
    assert rng(0, "sample", 0).permutation(10).tolist() == [7, 8, 9, 3, 2, 4, 5, 0, 6, 1]
    assert rng(12345, "attack", 2, 40).normal(size=2).tolist() == [0.9777049037869033, 0.013892002052094505]
    assert key(0, "batch", 3, 7) == 151446994034728563455180579687587728996
    assert torch.randint(0, 1000, (5,), generator=torch_rng(0, "init")).tolist() == [787, 22, 668, 181, 772]


def test_a_key_is_the_digest_of_type_length_and_value() -> None:
    """int 0, str "batch", int 3, int 7; anyone can draw the same numbers without this library."""
    digest = blake2b(b"i1:0s5:batchi1:3i1:7", digest_size=16).digest()
    assert key(0, "batch", 3, 7) == int.from_bytes(digest, "little")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, "ab", "c"), (0, "a", "bc")),
        ((0, "1"), (0, 1)),
        ((1, 2), (12,)),
        ((0, "a", 1), (0, "a1")),
        ((0, "batch", 1, 12), (0, "batch", 11, 2)),
        ((0, "i1:1"), (0, 1)),
        ((0, -1), (0, 1)),
        ((0,), (0, "")),
        ((0, ""), (0, "", "")),
    ],
)
def test_similar_addresses_have_different_keys(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert key(*one) != key(*other)
    assert rng(*one).integers(2**63) != rng(*other).integers(2**63)


@QUICK
@given(st.integers(), addresses, addresses)
def test_different_addresses_have_different_keys(seed: int, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert (key(seed, *one) == key(seed, *other)) == (one == other)


def test_numpy_integers_equal_python_integers() -> None:
    assert key(0, np.int64(7)) == key(0, 7)
    assert key(np.uint8(3), "a") == key(3, "a")


@pytest.mark.parametrize("part", [True, False, 1.0, None, (1,), b"a", np.float64(1.0), np.bool_(True)])
def test_other_types_are_refused(part: Any) -> None:
    """A float or a bool in an address is a mistake that would silently draw other numbers."""
    with pytest.raises(TypeError, match=f"an address consists of int and str, got {type(part).__name__}"):
        rng(0, part)


def test_draws_do_not_depend_on_what_was_drawn_before() -> None:
    first = rng(7, "batch", 1).normal(size=3)
    rng(7, "batch", 0).normal(size=1000)
    np.random.seed(1)
    random.seed(1)
    torch.manual_seed(1)
    assert rng(7, "batch", 1).normal(size=3).tolist() == first.tolist()


def test_global_generators_are_unchanged() -> None:
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    rng(0, "a").normal(size=10)
    torch.randn(10, generator=torch_rng(0, "a"))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    assert random.getstate() == states[2]


def test_torch_draws_do_not_depend_on_the_global_generator() -> None:
    torch.manual_seed(1)
    first = torch.randn(3, generator=torch_rng(0, "a", 1))
    torch.manual_seed(2)
    assert torch.equal(torch.randn(3, generator=torch_rng(0, "a", 1)), first)
    assert not torch.equal(torch.randn(3, generator=torch_rng(0, "a", 2)), first)


def test_a_key_has_the_given_number_of_bits() -> None:
    keys = [key(0, "bits", i, bits=64) for i in range(200)]
    assert max(keys) < 2**64
    assert max(keys) > 2**62
    assert key(0, "bits", 0, bits=128) >= 2**64


def test_the_context_adds_seed_and_round_to_an_address() -> None:
    context = RoundContext(t=3, lr=0.1, seed=5)
    assert context.rng("batch", 7).integers(2**63) == rng(5, "batch", 3, 7).integers(2**63)
    assert context.rng("batch").integers(2**63) != RoundContext(t=4, lr=0.1, seed=5).rng("batch").integers(2**63)


def test_neighbouring_addresses_are_uncorrelated() -> None:
    """Means of 400 x 50 standard normals: 20,000 draws, so their mean has deviation 0.007."""
    draws = np.stack([rng(0, "client", m).normal(size=50) for m in range(400)])
    assert abs(draws.mean()) < 0.03
    assert np.abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.03
