"""Counts computed by hand, and properties of every partition."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragfl.data.dataset import Dataset
from dragfl.data.partitions import (
    IID,
    PARTITIONS,
    ByGroup,
    DirichletClass,
    DirichletClient,
    GammaSimilarity,
    LabelGroup,
    LabelMod,
    QuantitySkew,
    Resampled,
    Shards,
    SortedShards,
    Split,
    label_counts,
    partition_dataset,
    summarize_split,
)
from dragfl.data.partitions.dirichlet import capped_counts, class_counts
from dragfl.errors import DataError, SpecError
from dragfl.rng import rng

CIFAR = np.arange(50_000) % 10  # ten balanced classes
EMNIST = np.arange(112_800) % 47  # 47 classes of 2,400


def held(split: Any, labels: np.ndarray) -> list[int]:
    """How many clients hold 0, 1, 2, ... classes."""
    counts = label_counts(split, labels, int(labels.max()) + 1)
    return np.bincount((counts > 0).sum(1)).tolist()


def gen(name: str = "partition") -> np.random.Generator:
    return rng(0, name)


def test_sorted_shards_of_cifar_over_20_clients_are_one_class_of_2500() -> None:
    """50,000 / 20 = 2,500 and a class has 5,000: each class is cut exactly in two."""
    split = SortedShards()(CIFAR, 20, gen())
    assert set(split.sizes) == {2500}
    counts = label_counts(split, CIFAR, 10)
    assert counts.tolist() == [[2500 if label == m // 2 else 0 for label in range(10)] for m in range(20)]


def test_sorted_shards_of_cifar_over_10_clients_are_one_whole_class() -> None:
    split = SortedShards()(CIFAR, 10, gen())
    assert (label_counts(split, CIFAR, 10) == 5000 * np.eye(10)).all()


def test_sorted_shards_of_emnist_over_40_clients() -> None:
    """112,800 / 40 = 2,820 samples, a class has 2,400: 34 clients reach into two classes and 6 into three."""
    split = SortedShards()(EMNIST, 40, gen())
    assert set(split.sizes) == {2820}
    assert held(split, EMNIST) == [0, 0, 34, 6]


def test_sorted_shards_of_emnist_over_10_clients() -> None:
    """112,800 / 10 = 11,280 = 4.7 classes: five or six classes each."""
    split = SortedShards()(EMNIST, 10, gen())
    assert set(split.sizes) == {11_280}
    counts = held(split, EMNIST)
    assert sum(counts[5:]) == 10 and len(counts) == 7


def test_label_mod_with_empty_clients_is_an_error_with_advice() -> None:
    """q = 1 on CIFAR with M = 20: labels 0..9 go to clients 0..9, clients 10..19 get nothing."""
    with pytest.raises(DataError, match=r"10 of 20 clients got no samples \(first: 10\).*lower q.*label_group"):
        LabelMod(q=1.0)(CIFAR, 20, gen())


def test_label_mod_of_emnist_over_40_clients() -> None:
    """Labels 40..46 wrap to clients 0..6: 33 clients with one class, 7 with two."""
    split = LabelMod(q=1.0)(EMNIST, 40, gen())
    assert held(split, EMNIST) == [0, 33, 7]
    assert set(split.samples_of(3) % 47) == {3, 43}


def test_label_mod_with_q_one_over_m_is_even() -> None:
    """P(home) = 1/M = P(any other): every cell of (client, label) expects 50,000/100 = 500, s.d. about 22."""
    counts = label_counts(LabelMod(q=0.1)(CIFAR, 10, gen()), CIFAR, 10)
    assert abs(counts - 500).max() < 120


def test_label_mod_intermediate_q() -> None:
    counts = label_counts(LabelMod(q=0.7)(CIFAR, 10, gen()), CIFAR, 10)
    assert abs(np.diag(counts) / 5000 - 0.7).max() < 0.03  # s.d. 0.0065


def test_label_group_with_two_clients_per_class() -> None:
    """M = 20, L = 10, q = 1: clients 2l and 2l + 1 share label l."""
    counts = label_counts(LabelGroup(q=1.0)(CIFAR, 20, gen()), CIFAR, 10)
    assert (counts.argmax(1) == np.arange(20) // 2).all() and ((counts > 0).sum(1) == 1).all()
    assert abs(counts.max(1) - 2500).max() < 200  # s.d. 35


def test_label_group_needs_a_client_for_each_class() -> None:
    with pytest.raises(DataError, match=r"10 clients cannot form 47 groups.*label_mod"):
        LabelGroup(q=1.0)(EMNIST, 10, gen())


def test_shards_assign_two_shards_per_client() -> None:
    """100 clients of CIFAR: 200 shards of 250, so at most two classes each and 500 samples."""
    split = Shards(k=2)(CIFAR, 100, gen())
    assert set(split.sizes) == {500}
    counts = held(split, CIFAR)
    assert len(counts) == 3 and counts[0] == 0


def test_gamma_similarity_at_zero_half_and_one() -> None:
    sorted_, iid = GammaSimilarity(0.0)(CIFAR, 20, gen()), GammaSimilarity(1.0)(CIFAR, 20, gen())
    assert held(sorted_, CIFAR) == [0, 20] and set(sorted_.sizes) == {2500}
    assert summarize_split(iid, CIFAR, 10).total_variation < 0.03
    middle = summarize_split(GammaSimilarity(0.5)(CIFAR, 20, gen()), CIFAR, 10)
    assert abs(middle.total_variation - 0.45) < 0.02  # half of the one-class distance 0.9


def test_gamma_similarity_sizes_differ_by_at_most_one() -> None:
    sizes = GammaSimilarity(0.33)(CIFAR[:1003], 17, gen()).sizes
    assert sizes.max() - sizes.min() <= 1


def test_dirichlet_client_keeps_equal_sizes_and_small_a_is_skewed() -> None:
    skewed = summarize_split(DirichletClient(a=0.1)(EMNIST, 40, gen()), EMNIST, 47)
    even = summarize_split(DirichletClient(a=1000.0)(EMNIST, 40, gen()), EMNIST, 47)
    assert (skewed.size_min, skewed.size_max) == (2820, 2820)
    assert skewed.total_variation > 0.7 > 0.1 > even.total_variation


def test_dirichlet_client_lognormal_sizes() -> None:
    sizes = DirichletClient(a=1.0, sigma=1.0)(CIFAR, 20, gen()).sizes
    assert sizes.sum() == 50_000 and sizes.max() > 3 * sizes.min()


def test_dirichlet_class_redraws_until_min_size() -> None:
    split = DirichletClass(a=0.1)(EMNIST, 40, gen())
    assert split.sizes.min() >= 10 and split.sizes.sum() == len(EMNIST)


def test_dirichlet_class_without_a_valid_draw_is_an_error_with_advice() -> None:
    with pytest.raises(DataError, match=r"a=0\.001.*raise a, lower min_size or clients\.total"):
        DirichletClass(a=0.001)(CIFAR[:2000], 100, gen())


def test_dirichlet_class_large_a_is_even() -> None:
    counts = label_counts(DirichletClass(a=1e6)(CIFAR, 10, gen()), CIFAR, 10)
    assert abs(counts - 500).max() <= 10


def test_dirichlet_class_cap_by_hand() -> None:
    """Three classes of 4 for two clients: the equal share is 6. Class 0 (1, 0): 4 and 0. Class 1 (1/2, 1/2): 2 and 2.
    Client 0 has 6, so class 2 goes to client 1, whatever its proportions; without the cap (3/4, 1/4) gives 3 and 1.
    """
    proportions, size = np.array([[1.0, 0.0], [0.5, 0.5], [0.75, 0.25]]), np.array([4, 4, 4])
    assert capped_counts(proportions, size).tolist() == [[4, 0], [2, 2], [0, 4]]
    assert class_counts(proportions, size).tolist() == [[4, 0], [2, 2], [3, 1]]


def test_dirichlet_class_cap_renormalises_and_replaces_zero_proportions() -> None:
    """Classes of 6, 0, 2 and 4 for three clients: the equal share is 4. Client 0 takes all of class 0; of class 2 the
    others get 0.1 : 0.3 = 1 : 3 of 2 samples, cut at rint(0.5) = 0. Client 0 alone is drawn for class 3: it is closed,
    and the others, with 0 and 2, get equal parts of it.
    """
    proportions = np.array([[1.0, 0.0, 0.0], [0.2, 0.4, 0.4], [0.6, 0.1, 0.3], [1.0, 0.0, 0.0]])
    counts = capped_counts(proportions, np.array([6, 0, 2, 4]))
    assert counts.tolist() == [[6, 0, 0], [0, 0, 0], [0, 0, 2], [0, 2, 2]]


def test_dirichlet_class_cap_makes_sizes_more_equal() -> None:
    """At a = 0.1 a client may hold several large parts; with the cap, at most its share and one class of 2,400 more."""
    free, capped = DirichletClass(a=0.1)(EMNIST, 40, gen()), DirichletClass(a=0.1, cap=True)(EMNIST, 40, gen())
    assert capped.sizes.sum() == len(EMNIST) and capped.sizes.min() >= 10
    assert capped.sizes.max() < 2820 + 2400
    assert capped.sizes.std() < 0.7 * free.sizes.std()


def test_quantity_skew_changes_sizes_and_not_labels() -> None:
    split = QuantitySkew(a=0.5, min_size=200)(CIFAR, 20, gen())
    found = summarize_split(split, CIFAR, 10)
    assert found.size_min >= 200 and found.size_max > 4 * found.size_median
    assert found.total_variation < 0.1
    assert set(QuantitySkew(sigma=0.0)(CIFAR, 20, gen()).sizes) == {2500}


def test_by_group_never_splits_a_group() -> None:
    groups = np.array([7, 7, 3, 9, 3, 9, 9])
    labels = np.array([0, 1, 0, 1, 0, 1, 0])
    split = ByGroup()(labels, 3, gen(), groups)
    assert [sorted(split.samples_of(m).tolist()) for m in range(3)] == [[2, 4], [0, 1], [3, 5, 6]]
    two = ByGroup()(labels, 2, gen(), groups)
    assert [len(set(groups[two.samples_of(m)])) for m in range(2)] in ([2, 1], [1, 2])
    with pytest.raises(DataError, match=r"only 3 groups; set clients.total to 3"):
        ByGroup()(labels, 4, gen(), groups)
    with pytest.raises(DataError, match="no groups"):
        ByGroup()(labels, 2, gen())


def test_partition_dataset_passes_groups_and_excludes_root_rows() -> None:
    x = torch.zeros(8, 1)
    y = torch.tensor([0, 1] * 4)
    dataset = Dataset("t", x, y, x, y, 2, groups=torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    assert partition_dataset(dataset, ByGroup(), 4, gen()).samples_of(2).tolist() == [4, 5]
    rows = np.array([1, 3, 5, 6])
    split = partition_dataset(dataset, ByGroup(), 4, gen(), rows)
    assert [split.samples_of(m).tolist() for m in range(4)] == [[1], [3], [5], [6]]
    virtual = partition_dataset(dataset, Resampled(k=2), 100, gen(), rows)
    assert set(np.concatenate([virtual.samples_of(m) for m in range(100)])) == {1, 3, 5, 6}


def test_resampled_needs_no_memory_for_a_million_clients() -> None:
    tracemalloc.start()
    split = Resampled(k=20)(CIFAR[:5000], 1_000_000, gen())
    sizes = split.sizes
    chosen = split.samples_of(999_999)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert split.clients == 1_000_000 and sizes.shape == (1_000_000,) and sizes[123] == 20
    assert len(set(chosen)) == 20 and chosen.tolist() == split.samples_of(999_999).tolist()
    assert chosen.tolist() != split.samples_of(999_998).tolist()
    assert summarize_split(split, CIFAR[:5000], 10).samples == 20_000_000


def test_resampled_with_dirichlet_classes() -> None:
    split = Resampled(k=30, a=0.05)(CIFAR[:1000], 500, gen())
    assert all(len(set(split.samples_of(m))) == 30 for m in range(50))
    assert summarize_split(split, CIFAR[:1000], 10).total_variation > 0.6
    whole = Resampled(k=1000, a=0.05)(CIFAR[:1000], 2, gen())
    assert sorted(whole.samples_of(1).tolist()) == list(range(1000))


SOME = [
    IID(),
    SortedShards(),
    LabelMod(q=0.3),
    LabelGroup(q=0.5),
    Shards(k=2),
    DirichletClass(a=0.5, min_size=1),
    DirichletClass(a=0.1, min_size=1, cap=True),
    DirichletClient(a=0.3),
    DirichletClient(a=0.01, sigma=0.7),
    QuantitySkew(a=0.3),
    QuantitySkew(sigma=1.0),
    GammaSimilarity(0.4),
]


@pytest.mark.parametrize("partition", SOME, ids=repr)
@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=120),
    clients=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_every_sample_is_assigned_once(partition: Any, labels: list[int], clients: int, seed: int) -> None:
    """Every index exactly once, no client empty, the same split for the same seed; or an error."""
    y = np.array(labels)
    try:
        split = partition(y, clients, rng(seed, "partition"))
    except DataError:
        return
    assert split.clients == clients and split.indices.dtype == np.int64
    assert sorted(split.indices.tolist()) == list(range(len(y)))
    assert split.sizes.min() >= 1
    again = partition(y, clients, rng(seed, "partition"))
    assert (again.indices == split.indices).all() and (again.offsets == split.offsets).all()


@given(groups=st.lists(st.integers(-3, 5), min_size=1, max_size=60), clients=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_by_group_assigns_every_sample(groups: list[int], clients: int) -> None:
    if clients > len(set(groups)):
        return
    split = ByGroup()(np.zeros(len(groups), np.int64), clients, gen(), np.array(groups))
    assert sorted(split.indices.tolist()) == list(range(len(groups))) and split.sizes.min() >= 1


@pytest.mark.parametrize(
    ("kind", "bad", "word"),
    [
        ("label_mod", {"q": 1.5}, "q: 1.5"),
        ("label_group", {"q": -0.1}, "q: -0.1"),
        ("shards", {"k": 0}, "k: 0"),
        ("shards", {"k": 1.5}, "k: 1.5"),
        ("dirichlet_class", {"a": 0}, "a: 0"),
        ("dirichlet_class", {"a": 0.1, "min_size": 0}, "min_size: 0"),
        ("dirichlet_class", {"a": 0.1, "cap": 1.5}, "cap: 1.5"),
        ("dirichlet_client", {"a": float("nan")}, "a: nan"),
        ("quantity_skew", {}, "give a "),
        ("quantity_skew", {"a": 1.0, "sigma": 1.0}, "not both"),
        ("gamma_similarity", {"gamma": "x"}, "gamma: 'x'"),
        ("resampled", {"k": True}, "k: True"),
        ("resampled", {"k": 3, "a": -1}, "a: -1"),
    ],
)
def test_bad_settings_name_the_value(kind: str, bad: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        PARTITIONS[kind](**bad)


@pytest.mark.parametrize("partition", [*SOME, ByGroup()], ids=repr)
def test_too_many_clients_and_none(partition: Any) -> None:
    y = np.array([0, 1, 2])
    with pytest.raises(DataError, match=r"lower clients.total"):
        partition(y, 4, gen())
    with pytest.raises(SpecError, match="clients: 0"):
        partition(y, 0, gen())


def test_summary_by_hand() -> None:
    """Labels 0 0 0 1; clients {0,0} and {0,1}. Global mix (3/4, 1/4); distances 1/4 and 1/4."""
    split = Split.from_parts([np.array([0, 1]), np.array([2, 3])])
    found = summarize_split(split, np.array([0, 0, 0, 1]), 2)
    assert (found.size_min, found.size_median, found.size_max) == (2, 2.0, 2)
    assert (found.classes_min, found.classes_median, found.classes_max) == (1, 1.5, 2)
    assert found.total_variation == pytest.approx(0.25)
    assert (found.clients, found.samples, found.seen) == (2, 4, 2)


def test_draws_are_pinned() -> None:
    """A change of these numbers changes every user's split: never in a patch release."""
    y = np.arange(12) % 3
    assert IID()(y, 3, rng(0, "partition")).samples_of(0).tolist() == PINNED_IID
    assert DirichletClass(a=0.5, min_size=1)(y, 3, rng(0, "partition")).samples_of(0).tolist() == PINNED_DIRICHLET_CLASS
    assert DirichletClient(a=0.5)(y, 3, rng(0, "partition")).samples_of(0).tolist() == PINNED_DIRICHLET
    assert Resampled(k=4)(y, 3, rng(0, "partition")).samples_of(2).tolist() == PINNED_RESAMPLED


PINNED_IID = [3, 1, 11, 6]
PINNED_DIRICHLET_CLASS = [4]
PINNED_DIRICHLET = [1, 4, 7, 10]
PINNED_RESAMPLED = [2, 4, 8, 0]


def test_indices_that_are_no_whole_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="part 1 has float64 indices; give whole numbers"):
        Split.from_parts([np.array([0, 1]), np.array([2.5])])  # type: ignore[list-item]
