"""Fingerprints of a run, in its run.json: what its numbers depend on besides the settings.

| fingerprint | digest of |
|---|---|
| data | all samples, labels and groups, and how they are scaled |
| weights | the initial parameters and buffers |
| model | layers, their settings and the shapes of the parameters |
| code | for each part of the user: `files`, the whole file of its module, and `loaded`, the code it can reach |
| dragfl | the source of dragfl; another one is a warning |

What an installed package contains is not covered, nor files that the code reads.
"""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import nn

from dragfl.build import load_dataset, make_module
from dragfl.config.augmentation import make_augment
from dragfl.config.spec import Experiment
from dragfl.data import FILE_KINDS
from dragfl.data.dataset import Dataset
from dragfl.own_code import import_object
from dragfl.runs.code_digest import DIGEST_BYTES, CodeDigest, hash_tensor
from dragfl.runs.simulation import Simulation
from dragfl.vector import FlatModel, init_module

NOT_IN_DATA = ("name", "class_names", "group_names", "transposed")  # they change figures and messages only
MODEL = "model.name"
SHORT = 6  # characters of a digest in a message
UNKNOWN = "it was made by a version without fingerprints, so its data, weights and code cannot be compared"

Fingerprint = dict[str, Any]


class Fingerprints:
    """Fingerprints of experiments that are not built. Each dataset is loaded and read once."""

    def __init__(self) -> None:
        self._data: dict[Any, tuple[Dataset, str]] = {}  # by name, or by id of the object it holds

    def of(self, experiment: Experiment) -> Fingerprint:
        key = experiment.dataset if isinstance(experiment.dataset, str) else id(experiment.dataset)
        if key not in self._data:
            dataset = load_dataset(experiment.dataset)
            self._data[key] = (dataset, digest_data(dataset))
        dataset, data = self._data[key]
        module = FlatModel(_new_module(experiment, dataset), buffers=experiment.model.buffers).module
        return _fingerprint(experiment, dataset, data, module)


def of_simulation(simulation: Simulation) -> Fingerprint:
    """Of a federation before its first round: of the very data and weights that it will use."""
    dataset = simulation.federation.worker.dataset
    return _fingerprint(simulation.experiment, dataset, digest_data(dataset), simulation.federation.model.module)


def _fingerprint(experiment: Experiment, dataset: Dataset, data: str, initial: nn.Module) -> Fingerprint:
    module = _new_module(experiment, dataset)  # not the initial one: a first forward pass may change attributes
    code = {
        key: found
        for key, part in _parts(experiment, dataset, module)
        if (found := digest_code(part, weights=key != MODEL))
    }
    structure = CodeDigest(code=False, weights=False).add(module).hexdigest()
    weights, package = digest_weights(initial), digest_package()
    return {"data": data, "weights": weights, "model": structure, "code": code, "dragfl": package}


def _new_module(experiment: Experiment, dataset: Dataset) -> nn.Module:
    return init_module(lambda: make_module(experiment.model, dataset), experiment.seed)


def digest_data(dataset: Dataset) -> str:
    """A field with its default value does not count, so a new field changes no digest."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for field in dataclasses.fields(dataset):
        value = getattr(dataset, field.name)
        if field.name in NOT_IN_DATA or value is field.default:
            continue
        if hasattr(value, "untyped_storage"):
            digest.update(field.name.encode())
            hash_tensor(digest, value)
        elif value != field.default:
            digest.update(f"{field.name}={CodeDigest().add(value).hexdigest()}".encode())
    return digest.hexdigest()


def digest_weights(module: nn.Module) -> str:
    digest = blake2b(digest_size=DIGEST_BYTES)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        digest.update(name.encode())
        hash_tensor(digest, tensor)
    return digest.hexdigest()


def _parts(experiment: Experiment, dataset: Dataset, module: nn.Module) -> Iterator[tuple[str, list[Any]]]:
    """The key of each part that may be the user's, and its objects."""
    named, parts = experiment.dataset, experiment.algorithm
    kind, colon, _ = named.partition(":") if isinstance(named, str) else ("", "", "")
    source = [import_object("data.dataset", named)] if colon and kind not in FILE_KINDS else []
    yield "data.dataset", [type(dataset), *(part for part in source if callable(part))]
    yield "data.partition", [experiment.partition]
    for part in ("correction", "aggregate", "server"):
        yield f"algorithm.{part}", [getattr(parts, part)]
    yield "attack.name", [experiment.attack]
    yield "clients.augment", [make_augment(experiment.clients.augment)]
    make = experiment.model.make
    yield MODEL, [module, experiment.model.settings, *([] if isinstance(make, nn.Module) else [make])]


def digest_code(objects: list[Any], *, weights: bool = True) -> Fingerprint | None:
    """The digests of the code of a part; None if it is all dragfl's or a library's and has a name."""
    digest = CodeDigest(weights=weights)
    for part in objects:
        digest.add(part)
    if not digest.modules and not digest.wrapped:
        return None
    files = {name: found for name in sorted(digest.modules) if (found := _digest_file(name))}
    return {"files": files, "loaded": digest.hexdigest()}


def _digest_file(module: str) -> str | None:
    """The digest of a module's file; None in a notebook, and for a script, of which only the code in use counts."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__" or file is None:
        return None
    try:
        return blake2b(Path(file).read_bytes(), digest_size=DIGEST_BYTES).hexdigest()
    except OSError:
        return None


def changes(stored: Mapping[str, Any], now: Fingerprint) -> list[str]:
    """What differs from the run with this run.json, in words; empty if nothing does, or if it has no fingerprints.

    Digests of loaded code depend on the versions of Python and dragfl; with other versions only files are compared.
    """
    before = stored.get("fingerprints")
    if not before:
        return []
    same_digests = _minor(stored) == _minor({}) and stored.get("dragfl") == version("dragfl")
    names = {"data": "the data", "weights": "the initial weights"} | ({"model": "the model"} if same_digests else {})
    found = [
        f"{name} (digest {before[key][:SHORT]} -> {now[key][:SHORT]})"
        for key, name in names.items()
        if before[key] != now[key]
    ]
    for key in dict.fromkeys([*before["code"], *now["code"]]):
        one, other = before["code"].get(key, {}), now["code"].get(key, {})
        found += _changed_code(key, one, other, same_digests=same_digests)
    return list(dict.fromkeys(found))


def _changed_code(key: str, one: Mapping[str, Any], other: Mapping[str, Any], *, same_digests: bool) -> list[str]:
    files = [name for name, digest in other.get("files", {}).items() if one.get("files", {}).get(name) != digest]
    if files:
        return [f"the code of {name.replace('.', '/')}.py" for name in files]
    return [f"the code of {key}"] if same_digests and one.get("loaded") != other.get("loaded") else []


def _minor(info: Mapping[str, Any]) -> str:
    """The version of Python that decides the bytecode."""
    return ".".join(str(info.get("python", platform.python_version())).split(".")[:2])


def doubts(stored: Mapping[str, Any]) -> list[str]:
    """Why the numbers of a run may be others today although nothing that can be compared has changed."""
    if not stored.get("fingerprints"):
        return [UNKNOWN]
    packages = {package: version(package) for package in ("dragfl", "torch")}
    found = [
        f"it was made with {package} {stored[package]}, and this is {now}; the numbers may differ"
        for package, now in packages.items()
        if stored.get(package, now) != now
    ]
    if not found and stored["fingerprints"].get("dragfl", digest_package()) != digest_package():
        found = ["the source of dragfl was edited since; the numbers may differ"]
    return found


@cache
def digest_package() -> str:
    """The digest of the source of dragfl."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
