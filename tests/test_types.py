"""The shared values: updates, partial sums and records."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dragfl.types import Partial, RoundRecord, Updates, spans


def updates(first: int, k: int) -> Updates:
    delta = torch.arange(first, first + k, dtype=torch.float32).unsqueeze(1) * torch.tensor([3.0, 4.0])
    ids = torch.arange(first, first + k)
    return Updates(delta, ids.double() * 10, ids, {"dc": delta * 2, "tau": ids.double()}, ids + 5)


def test_spans_of_tensor_boundaries() -> None:
    assert spans((0, 2, 5, 6)) == [(0, 2), (2, 5), (5, 6)]
    assert spans((0, 4)) == [(0, 4)]


def test_length_and_norms_of_updates() -> None:
    block = updates(1, 3)
    assert len(block) == 3
    assert block.norm.tolist() == [5.0, 10.0, 15.0]
    assert block.norm.dtype == torch.float64


def test_local_steps_default_to_one() -> None:
    block = Updates(torch.zeros(2, 3), torch.ones(2).double(), torch.arange(2))
    assert block.steps.tolist() == [1, 1]


@pytest.mark.parametrize("rows", [torch.tensor([True, False, True]), torch.tensor([0, 2])])
def test_select_keeps_all_fields_of_a_row(rows: torch.Tensor) -> None:
    chosen = updates(1, 3).select(rows)
    assert chosen.delta.tolist() == [[3.0, 4.0], [9.0, 12.0]]
    assert chosen.weight.tolist() == [10.0, 30.0]
    assert chosen.client.tolist() == [1, 3]
    assert chosen.steps.tolist() == [6, 8]
    assert chosen.extra["dc"].tolist() == [[6.0, 8.0], [18.0, 24.0]]
    assert chosen.extra["tau"].tolist() == [1.0, 3.0]
    assert chosen.norm.tolist() == [5.0, 15.0]


def test_concat_keeps_the_order() -> None:
    whole = Updates.concat([updates(0, 2), updates(2, 1), updates(3, 2)])
    expected = updates(0, 5)
    for name in ("delta", "weight", "client", "steps"):
        assert torch.equal(getattr(whole, name), getattr(expected, name))
    assert torch.equal(whole.extra["dc"], expected.extra["dc"])
    one = updates(0, 2)
    assert Updates.concat([one]) is one


def test_partials_add_their_sums_and_concatenate_their_columns() -> None:
    a, b = updates(1, 2), updates(3, 1)
    parts = [Partial.of(block, {"n": block.norm.sum()}, {"norm": block.norm}) for block in (a, b)]
    both = parts[0] + parts[1]
    assert both.count == 3
    assert both.total.tolist() == [18.0, 24.0]
    assert float(both.sums["n"]) == 30.0
    assert both.per_client["norm"].tolist() == [5.0, 10.0, 15.0]
    assert both.mean.tolist() == [6.0, 8.0]
    assert both.mean.dtype == torch.float32


def test_a_partial_can_take_a_computed_total() -> None:
    block = updates(1, 2)
    total = torch.tensor([9.0, 12.0])
    assert Partial.of(block, {}, {}, total).total is total
    assert torch.equal(Partial.of(block, {}, {}).total, total)


def test_sums_of_any_dtype_add_in_float64() -> None:
    """An int64 count and a float32 vector both become float64, in which 2^24 + 1 is exact."""
    block = updates(1, 1)
    big = Partial.of(block, {"k": torch.tensor(3), "A": torch.tensor([2.0**24])}, {})
    small = Partial.of(block, {"k": torch.tensor(4), "A": torch.tensor([1.0])}, {})
    both = big + small
    assert {value.dtype for value in both.sums.values()} == {torch.float64}
    assert float(both.sums["A"]) == 2.0**24 + 1
    assert float(both.sums["k"]) == 7.0


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        updates(0, 1).delta = torch.zeros(1, 2)  # type: ignore[misc]


def test_a_record_has_an_accuracy_if_it_was_evaluated() -> None:
    assert RoundRecord(1, {"accuracy": 0.5}, {}, {}).accuracy == 0.5
    assert RoundRecord(1, {"loss": 0.5}, {}, {}).accuracy is None
