"""Findings about models, partitions and datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragfl.data.dataset import Dataset
from dragfl.data.partitions.split import ClientSplit, checked_split
from dragfl.errors import DragflError
from dragfl.models.call import call_model
from dragfl.own_code import name_of, named_errors
from dragfl.rng import rng
from dragfl.testing.compare import different_bits
from dragfl.testing.findings import Finding, information
from dragfl.vector import FlatModel, init_module

SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (10,))  # tried in this order, if no shape is given
CLASSES = 10


def model_findings(make: Any, settings: Mapping[str, Any], shapes: tuple[tuple[int, ...], ...]) -> Iterator[Finding]:
    """A model is made, accepts inputs of one of the shapes, and trains."""
    module, shape, tried = None, shapes[0], list[str]()
    for shape in shapes:
        try:
            module = _made(make, shape, settings)
            scores = _scores(module, shape, 5)
            break
        except (DragflError, RuntimeError, ValueError, TypeError) as error:
            tried.append(f"{shape}: {' '.join(str(error).split())[:200]}")
            module = None
    if module is None:
        yield Finding("runs", True, False, f"no inputs of these shapes are accepted: {'; '.join(tried)}")
        return
    yield Finding("runs", True, True, f"it accepts inputs of shape {shape}")
    good = isinstance(scores, Tensor) and scores.is_floating_point() and scores.shape == (5, CLASSES)
    seen = (scores.dtype, tuple(scores.shape)) if isinstance(scores, Tensor) else type(scores).__name__
    yield Finding("scores", True, good, f"5 samples give {seen}, for {CLASSES} classes")
    if not good:
        return
    finite = bool(torch.isfinite(scores).all())
    yield Finding("finite", True, finite, "its first output is finite" if finite else "it holds a NaN or an infinity")
    yield _required("seeded", "the same seed gives the same weights", _reseeded(make, shape, settings))
    yield _required("parameters", "its parameters are trainable and float32", _flat(module))

    def no_gradient() -> str:
        module.train()
        loss = nn.functional.cross_entropy(module(_inputs(shape, 5)), torch.arange(5))
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        unused = [name for name, grad in zip(named, grads, strict=True) if grad is None]
        return f"no gradient reaches {', '.join(unused[:3])}" if unused else ""

    def batch() -> str:
        one, all_of_them = _scores(module, shape, 1), _scores(module, shape, 5)
        return "" if torch.allclose(one[0], all_of_them[0], atol=1e-4) else "a score depends on the other samples"

    def buffers() -> str:
        held = [name for name, _ in module.named_buffers()]
        return f"it has {held[0]}; set model.buffers = 'average'" if held else ""

    yield information("gradient", "a gradient reaches every parameter", no_gradient)
    yield information("samples", "the scores of a sample do not depend on the others of its batch", batch)
    yield information("buffers", "it has no buffers, such as those of BatchNorm", buffers)


def _made(make: Any, shape: tuple[int, ...], settings: Mapping[str, Any]) -> nn.Module:
    module = make if isinstance(make, nn.Module) else init_module(lambda: call_model(make, shape, CLASSES, settings), 0)
    if not isinstance(module, nn.Module):
        raise TypeError(f"made a {type(module).__name__}; it must make an nn.Module")
    return module


def _inputs(shape: tuple[int, ...], samples: int) -> Tensor:
    return torch.from_numpy(rng(0, "testing", "inputs").random((5, *shape), dtype=np.float32))[:samples]


def _scores(module: nn.Module, shape: tuple[int, ...], samples: int) -> Any:
    module.eval()
    with torch.no_grad():
        return module(_inputs(shape, samples))


def _reseeded(make: Any, shape: tuple[int, ...], settings: Mapping[str, Any]) -> str:
    one, two = (dict(_made(make, shape, settings).named_parameters()) for _ in range(2))
    return different_bits(dict(one), dict(two), "weights")


def _flat(module: nn.Module) -> str:
    try:
        FlatModel(module, buffers="average")
    except DragflError as error:
        return str(error)
    return ""


def _required(name: str, text: str, seen: str) -> Finding:
    return Finding(name, True, not seen, seen or text)


def partition_findings(partition: Any) -> Iterator[Finding]:
    """A partition of 600 samples of ten classes over 12 clients, twice with the same generator."""
    labels = rng(0, "testing", "labels").integers(0, 10, 600)
    clients = 12

    def split() -> ClientSplit:
        extra = (np.arange(600) % 24,) if getattr(partition, "uses_groups", False) else ()
        with named_errors(name_of(partition)):
            given = partition(labels.copy(), clients, rng(0, "partition"), *extra)
        return checked_split(name_of(partition), given, len(labels), clients)

    try:
        first, second = split(), split()
    except DragflError as error:
        yield Finding("runs", True, False, str(error))
        return
    yield Finding("runs", True, True, "every client has at least one sample, and all indices exist")
    parts = [np.sort(first.samples_of(m)) for m in range(clients)]
    same = all(np.array_equal(part, np.sort(second.samples_of(m))) for m, part in enumerate(parts))
    text = "the same generator gives the same split" if same else "two calls with the same generator differ"
    yield Finding("deterministic", True, same, text)
    owned = np.concatenate(parts)
    doubled = len(owned) - len(np.unique(owned))
    overlap = f"{doubled} of 600 samples have several clients" if doubled else ""
    yield information("once", "every sample has at most one client", lambda: overlap)
    unused = len(labels) - len(np.unique(owned))
    yield information("all", "every sample has a client", lambda: f"{unused} of 600 have none" if unused else "")


def dataset_findings(found: Any) -> Iterator[Finding]:
    """A Dataset, or a function that makes one."""

    def make() -> Any:
        with named_errors(name_of(found)):
            return found() if callable(found) else found

    try:
        data, again = make(), make()
    except DragflError as error:
        yield Finding("runs", True, False, str(error))
        return
    if not isinstance(data, Dataset):
        yield Finding("runs", True, False, f"it is a {type(data).__name__}; it must be a Dataset or make one")
        return
    yield Finding("runs", True, True, f"{data!r}")
    names = ("x", "y", "test_x", "test_y")
    same = all(torch.equal(getattr(data, name), getattr(again, name)) for name in names)
    text = "two calls give the same samples" if same else "two calls give other samples; seed its generator"
    yield Finding("deterministic", True, same, text)
    for name, y in (("train classes", data.y), ("test classes", data.test_y)):
        missing = sorted(set(range(data.classes)) - set(y.tolist()))
        seen = f"no sample of the classes {missing[:5]}" if missing else ""
        yield information(name, "every class occurs", lambda seen=seen: seen)  # type: ignore[misc]
