"""The digest of code: every edit of what a part can reach is noticed, and no other."""

from __future__ import annotations

import collections
import functools
import importlib
import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dragfl.runs.code_digest import CodeDigest, is_own_module
from dragfl.runs.fingerprints import digest_code

CELL = '''
import functools
import math
from collections import namedtuple
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import nn
import torch.nn.functional as F

SCALE = 0.5
TABLE = {"a": 1, "b": [2, 3]}
ALLOWED = {"red", "green", "blue"}
START = torch.zeros(3)
Pair = namedtuple("Pair", ["low", "high"])
LIMITS = Pair(0.0, 1.0)
MARGIN = 7


class Mode(Enum):
    FAST = 1
    SLOW = 2


def noisy(function):
    @functools.wraps(function)
    def wrapped(*args):
        return 1.0 * function(*args)
    return wrapped


def helper(x):
    return deeper(x) + 1


def deeper(x):
    return x * SCALE


@noisy
def decorated(x):
    return x - 1


@functools.lru_cache
def remembered(n):
    return n * 2


def make_power(exponent):
    def power(x):
        return x ** exponent
    return power


square = make_power(2)
shift = lambda x: x + 3
third = functools.partial(helper, 3)


class Base:
    rate = 0.1

    def step(self, x):
        return x * self.rate


@dataclass(frozen=True)
class Part(Base):
    """A part."""

    factor: float = 2.0
    names: tuple = field(default_factory=lambda: ("x", "y"))

    class Inner:
        depth = 3

    @property
    def width(self):
        return 4

    @staticmethod
    def clip(x, low=0.0, *, high=1.0):
        return min(max(x, low), high)

    @classmethod
    def default(cls):
        return cls(3.0)

    def __call__(self, x):
        """Compute it."""
        x = super().step(x)
        y = helper(x) + square(x) + shift(x) + decorated(x) + third() + remembered(5)
        if x in ALLOWED and y in (1, 2) or Mode.FAST.value == 1:
            y += LIMITS.high + TABLE["a"] + START.sum()

        def local(z):
            return z + math.pi

        return [local(v) for v in (y, self.width)]

    def log(self):
        try:
            return F.relu(START)
        except ValueError:
            return None


class Recursive:
    """It refers to itself, in a set too."""

    def again(self):
        return [*KINDS, Recursive]


KINDS = {Recursive, Base}


def unrelated(x):
    return MARGIN
'''

# (what is edited, text before, text after)
EDITS = [
    ("method body", "y += LIMITS.high + TABLE", "y -= LIMITS.high + TABLE"),
    ("constant in a method", "(1, 2) or", "(1, 3) or"),
    ("local function", "z + math.pi", "z - math.pi"),
    ("library function", "F.relu(START)", "F.elu(START)"),
    ("attribute of a library", "math.pi", "math.e"),
    ("exception", "except ValueError", "except TypeError"),
    ("helper function", "deeper(x) + 1", "deeper(x) + 2"),
    ("function of a helper", "return x * SCALE", "return x / SCALE"),
    ("global number", "SCALE = 0.5", "SCALE = 0.25"),
    ("value in a global table", '"b": [2, 3]', '"b": [2, 4]'),
    ("item of a global set", '"green", "blue"', '"green", "pink"'),
    ("global tensor", "torch.zeros(3)", "torch.ones(3)"),
    ("shape of a global tensor", "torch.zeros(3)", "torch.zeros(4)"),
    ("namedtuple", "Pair(0.0, 1.0)", "Pair(0.0, 2.0)"),
    ("enum", "FAST = 1", "FAST = 0"),
    ("decorated function", "return x - 1", "return x - 2"),
    ("decorator", "1.0 * function(*args)", "2.0 * function(*args)"),
    ("decorator removed", "@noisy\n", ""),
    ("cached function", "n * 2", "n * 3"),
    ("closure value", "make_power(2)", "make_power(3)"),
    ("closure code", "x ** exponent", "x * exponent"),
    ("lambda", "x + 3", "x + 4"),
    ("argument of a partial", "partial(helper, 3)", "partial(helper, 4)"),
    ("class attribute of the base", "rate = 0.1", "rate = 0.2"),
    ("method of the base", "x * self.rate", "x / self.rate"),
    ("base class", "class Part(Base)", "class Part(Base, dict)"),
    ("default of a field", "factor: float = 2.0", "factor: float = 2.5"),
    ("default factory", '("x", "y")', '("x", "z")'),
    ("field removed", "    factor: float = 2.0\n", ""),
    ("nested class", "depth = 3", "depth = 4"),
    ("property", "return 4", "return 5"),
    ("static method", "min(max(x, low), high)", "max(min(x, low), high)"),
    ("default argument", "low=0.0", "low=0.1"),
    ("keyword default", "high=1.0)", "high=0.9)"),
    ("class method", "cls(3.0)", "cls(4.0)"),
    ("method removed", "    def log(self):", "    def record(self):"),
]
UNRELATED = [
    ("other function", "return MARGIN", "return MARGIN + 1"),
    ("constant of another function", "MARGIN = 7", "MARGIN = 8"),
    ("comment", "SCALE = 0.5", "SCALE = 0.5  # a half"),
    ("docstring of a method", '"""Compute it."""', '"""Compute all of it."""'),
    ("docstring of the class", '"""A part."""', '"""A part, well described."""'),
    ("docstring added", "def deeper(x):", 'def deeper(x):\n    """Deeper."""'),
    ("lines moved", "SCALE = 0.5", "\n\n\n\nSCALE = 0.5"),
    ("line breaks", "x = super().step(x)", "x = super().step(\n            x\n        )"),
    ("annotation", "def helper(x):", "def helper(x: float) -> float:"),
    ("new function", "def unrelated(x)", "def new(x):\n    return SCALE\n\n\ndef unrelated(x)"),
    ("new import", "import math\n", "import math\nimport json\n"),
    ("other class", "return [*KINDS, Recursive]", "return [*KINDS, Recursive, 1]"),
    ("order of a set", '"red", "green", "blue"', '"blue", "green", "red"'),
    ("order of a table", '{"a": 1, "b": [2, 3]}', '{"b": [2, 3], "a": 1}'),
]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module without a file."""
    module = types.ModuleType("notebook_x")
    monkeypatch.setitem(sys.modules, "notebook_x", module)
    yield module


def digest(module: types.ModuleType, code: str, name: str = "Part") -> str:
    vars(module).clear()
    vars(module)["__name__"] = "notebook_x"
    exec(code, vars(module))
    return CodeDigest().add(vars(module)[name]).hexdigest()


@pytest.mark.parametrize(("before", "after"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_an_edit_of_reachable_code_is_noticed(notebook: types.ModuleType, before: str, after: str) -> None:
    assert CELL.count(before) >= 1
    assert digest(notebook, CELL.replace(before, after)) != digest(notebook, CELL)


@pytest.mark.parametrize(("before", "after"), [e[1:] for e in UNRELATED], ids=[e[0] for e in UNRELATED])
def test_an_unrelated_edit_is_not(notebook: types.ModuleType, before: str, after: str) -> None:
    edited = CELL.replace(before, after)
    assert edited != CELL
    assert digest(notebook, edited) == digest(notebook, CELL)


def test_the_digest_is_the_same_in_every_process(tmp_path: Path, notebook: types.ModuleType) -> None:
    """Memory addresses and the order of sets are others there."""
    (tmp_path / "notebook_x.py").write_text(CELL)
    code = (
        "import notebook_x, torch; from dragfl.runs.code_digest import CodeDigest\n"
        "print(CodeDigest().add(notebook_x.Part).hexdigest(), CodeDigest().add(notebook_x.Recursive).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [digest(notebook, CELL), digest(notebook, CELL, "Recursive")]


def test_an_object_counts_with_its_values() -> None:
    class Slotted:
        __slots__ = ("a",)

        def __init__(self, a: object) -> None:
            self.a = a

    def of(value: object) -> str:
        return CodeDigest().add(value).hexdigest()

    values: list[object] = [
        1, 1.0, True, "1", b"1", None, (1,), [1], {1}, {"a": 1}, {1: "a"}, torch.ones(1), np.ones(1), np.float32(1.0),
        Slotted(1), Slotted(2), torch.float32, torch.float64, range(3), Path("a"), Path("b"), int, torch.tanh, ...,
    ]  # fmt: skip
    assert len({of(value) for value in values}) == len(values)
    assert of({"a": 1, "b": 2}) == of({"b": 2, "a": 1})
    loop: list[object] = []
    loop.append(loop)
    assert of(loop) == of(loop) != of([[]])


def test_objects_of_libraries_count_with_their_state() -> None:
    """Their text has only a type or a size."""

    def of(value: object) -> str:
        return CodeDigest().add(lambda: value).hexdigest()

    pairs = [
        (np.random.default_rng, 1, 2), (lambda seed: torch.Generator().manual_seed(seed), 1, 2),
        (lambda mean: torch.distributions.Normal(torch.full((3,), mean), torch.ones(3)), 1.0, 2.0),
        (lambda last: collections.deque([1, last]), 2, 3), (lambda kind: collections.defaultdict(kind), int, list),
    ]  # fmt: skip
    for make, one, other in pairs:
        assert of(make(one)) == of(make(one)) != of(make(other))


def test_what_cannot_be_copied_counts_by_its_type() -> None:
    """A lock, a file, or the console of a notebook is not what decides the numbers."""

    def of(value: object) -> str:
        return CodeDigest().add(lambda: value).hexdigest()

    with Path(os.devnull).open() as one, Path(os.devnull).open() as other:
        assert of(one) == of(other) != of(threading.Lock()) == of(threading.Lock())


def test_a_cached_property_is_no_change() -> None:
    class Part:
        @functools.cached_property
        def table(self) -> int:
            return 3

    part = Part()
    before = CodeDigest().add(part).hexdigest()
    assert part.table == 3
    assert CodeDigest().add(part).hexdigest() == before


def test_a_wrapped_library_function() -> None:
    """Both are `object:partial` in a spec."""
    one, other = (digest_code([functools.partial(f, dim=0)]) for f in (torch.mean, torch.sum))
    assert one and other and one["files"] == other["files"] == {} and one["loaded"] != other["loaded"]
    assert digest_code([torch.mean]) is None


class TestModules:
    """Equal weights, names and shapes, but another network."""

    def net(self, *layers: nn.Module) -> str:
        torch.manual_seed(0)
        return CodeDigest(code=False, weights=False).add(nn.Sequential(nn.Linear(3, 3), *layers)).hexdigest()

    def test_layers_and_their_settings(self) -> None:
        frozen = nn.Linear(3, 3)
        frozen.weight.requires_grad_(False)
        shared = nn.Linear(3, 3)
        nets = [
            self.net(nn.ReLU()), self.net(nn.Tanh()), self.net(nn.LeakyReLU(0.1)), self.net(nn.LeakyReLU(0.2)),
            self.net(nn.GroupNorm(1, 3)), self.net(nn.GroupNorm(3, 3)), self.net(nn.Linear(3, 3)), self.net(frozen),
            self.net(nn.Linear(3, 3), nn.Linear(3, 3)), self.net(shared, shared), self.net(),
        ]  # fmt: skip
        assert len(set(nets)) == len(nets)
        assert self.net(nn.ReLU()) == self.net(nn.ReLU())

    def test_attributes_and_hooks(self) -> None:
        def of(**attributes: object) -> str:
            layer = nn.Linear(2, 2)
            vars(layer).update(attributes)
            return CodeDigest(code=False, weights=False).add(layer).hexdigest()

        assert len({of(), of(act=torch.relu), of(act=torch.tanh), of(mask=torch.ones(2)), of(mask=torch.zeros(2))}) == 5
        hooked = nn.Linear(2, 2)
        hooked.register_forward_hook(lambda *given: None)
        assert CodeDigest(code=False, weights=False).add(hooked).hexdigest() != of()

    def test_weights_count_only_if_asked(self) -> None:
        one, other = nn.Linear(2, 2), nn.Linear(2, 2)
        assert CodeDigest(weights=False).add(one).hexdigest() == CodeDigest(weights=False).add(other).hexdigest()
        assert CodeDigest().add(one).hexdigest() != CodeDigest().add(other).hexdigest()


def test_own_code_and_that_of_others() -> None:
    assert [is_own_module(name) for name in ("__main__", None, __name__)] == [True] * 3
    assert not any(
        is_own_module(name) for name in ("dragfl.types", "torch.nn", "math", "builtins", "numpy", "collections.abc")
    )


@pytest.mark.parametrize("helper", ["helpers_x", "package_x.helpers_x"])
def test_a_helper_module_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: str) -> None:
    """`helpers.scale(x)`: what is used of another own module counts, the rest of that module does not."""
    (tmp_path / "package_x").mkdir()
    file = tmp_path / f"{helper.replace('.', '/')}.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []
    for text in ("def scale(x): return x", "def scale(x): return 2 * x", "def scale(x): return x\n\ndef b(): return 1"):
        file.write_text(text)
        (tmp_path / "part_x.py").write_text(f"import {helper}\n\ndef part(x):\n    return {helper}.scale(x)\n")
        for name in ("helpers_x", "package_x", "package_x.helpers_x", "part_x"):
            sys.modules.pop(name, None)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        importlib.invalidate_caches()
        found = CodeDigest().add(importlib.import_module("part_x").part)
        assert found.modules == {"part_x"}
        seen.append(found.hexdigest())
    assert seen[0] == seen[2] != seen[1]
