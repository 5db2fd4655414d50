"""Data poisoning: an attacker changes its own samples before it trains. A spec names these as attacks.

A data attack has `poison(x, y, predict, rng) -> (x, y)`: stored inputs and labels in, new ones out, nothing changed in
place. `predict(x)` returns the (n, classes) scores of the model just sent out; only the dynamic flip uses it. An attack
whose settings depend on the dataset has `for_data(classes, x)`, called once before the first round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from dragfl.attacks.common import check_positive
from dragfl.attacks.random_scaling import backdoor_scale
from dragfl.errors import DataError, SettingError, SpecError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choices
from dragfl.types import Knowledge, NoState, RoundContext, Strength, Updates, View, no_state

Predict = Callable[["Tensor"], "Tensor"]  # stored inputs (n, ...) -> scores (n, classes)


class Poison(Protocol):
    def poison(
        self, x: Tensor, y: Tensor, predict: Predict | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]: ...


def _check_sample_fraction(poison: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise SettingError(poison, "sample_fraction", f"{value!r}; give a number above 0 and at most 1")


def _draw_rows(n: int, fraction: float, rng: np.random.Generator) -> Tensor:
    """A random subset of range(n), rounded to the nearest count; all of it, in order, at fraction 1."""
    count = round(fraction * n)
    return torch.arange(n) if count == n else torch.from_numpy(rng.choice(n, count, replace=False))


def _relabel(y: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    out = y.clone()
    out[rows] = labels
    return out


def send_unchanged(self: Any, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
    """The data are poisoned; the update is sent unchanged."""
    return view.own, state


@dataclass(frozen=True)
class LabelFlip:
    """Trains on changed labels.

    y -> L-1-y ("mirror"), y -> (y + shift) mod L ("shift"), or source -> target ("pair"), for a share of the samples.

    M. Fang et al., Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, USENIX Security 2020 (mirror);
    V. Tolpegin et al., Data Poisoning Attacks Against Federated Learning Systems, ESORICS 2020 (pair).
    """

    classes: int | None = None  # L; a run takes it from the dataset
    mode: Literal["mirror", "shift", "pair"] = "mirror"
    shift: int = 1
    source: int | None = None
    target: int | None = None
    sample_fraction: float = 1.0

    knowledge: ClassVar[Knowledge] = "own"
    strength: ClassVar[Strength] = ("sample_fraction", 0.125, 1.0)
    init = no_state
    craft = send_unchanged

    def __post_init__(self) -> None:
        _check_sample_fraction("label_flip", self.sample_fraction)
        check_choices("label_flip", self)
        if self.mode == "shift" and self.shift % (self.classes or math.inf) == 0:
            raise SettingError(
                "label_flip", "shift", f"{self.shift} of {self.classes} classes changes no label; give another number"
            )
        for name in ("source", "target") if self.mode == "pair" else ():
            value = getattr(self, name)
            if value is None or not 0 <= value < (self.classes or math.inf):
                last = f" to {self.classes - 1}" if self.classes else ""
                raise SettingError("label_flip", name, f"{value!r}; give a class from 0{last}")

    def for_data(self, classes: int, x: Tensor) -> LabelFlip:
        """The same with L known."""
        if self.classes not in (None, classes):
            raise SpecError(f"attack.classes: {self.classes}, but the data have {classes} classes; leave it out")
        return replace(self, classes=classes)

    def poison(self, x: Tensor, y: Tensor, predict: Predict | None, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        if self.classes is None:
            raise SpecError("label_flip.classes: the number of classes is not known; give classes")
        rows = _draw_rows(len(y), self.sample_fraction, rng)
        old = y[rows]
        if self.mode == "mirror":
            new = self.classes - 1 - old
        elif self.mode == "shift":
            new = (old + self.shift) % self.classes
        else:
            new = old.masked_fill(old.eq(self.source or 0), self.target or 0)
        return x, _relabel(y, rows, new)


@dataclass(frozen=True)
class DynamicLabelFlip:
    """Trains on labels replaced by the class that the current model finds least likely: argmin of its scores.

    V. Shejwalkar et al., Back to the Drawing Board: A Critical Evaluation of Poisoning Attacks on Production Federated
    Learning, IEEE S&P 2022.
    """

    sample_fraction: float = 1.0

    knowledge: ClassVar[Knowledge] = "own"
    strength: ClassVar[Strength] = ("sample_fraction", 0.125, 1.0)
    init = no_state
    craft = send_unchanged

    def __post_init__(self) -> None:
        _check_sample_fraction("dynamic_label_flip", self.sample_fraction)

    def poison(self, x: Tensor, y: Tensor, predict: Predict | None, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        if predict is None:
            raise DataError("poison dynamic_label_flip: needs the scores of the current model; give predict")
        rows = _draw_rows(len(y), self.sample_fraction, rng)
        return x, _relabel(y, rows, predict(x[rows]).argmin(1).to(y.dtype))


@dataclass(frozen=True)
class Backdoor:
    """Trains on images with a bright square in a corner and the target label.

    T. Gu, B. Dolan-Gavitt, S. Garg, BadNets, 2017; E. Bagdasaryan et al., How to Backdoor Federated Learning, AISTATS
    2020. With `copies` the triggered samples are added and the clean ones stay, as in FLTrust's scaling attack.
    """

    target: int = 0
    size: int = 3  # side of the square, in pixels
    value: float | None = None  # what is written, in stored units; default: the brightest value of the images given
    corner: Literal["top left", "top right", "bottom left", "bottom right"] = "bottom right"
    sample_fraction: float = 0.5
    copies: bool = False
    scale: float = 1.0  # factor on the update; clients per round / server lr replaces the model

    knowledge: ClassVar[Knowledge] = "own"
    init = no_state

    def __post_init__(self) -> None:
        _check_sample_fraction("backdoor", self.sample_fraction)
        check_choices("backdoor", self)
        check_positive("backdoor", scale=self.scale)
        if self.target < 0:
            raise SettingError("backdoor", "target", f"{self.target}; give a class, from 0")
        if self.size < 1:
            raise SettingError("backdoor", "size", f"{self.size}; give the side of the square, at least 1")

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return replace(view.own, delta=backdoor_scale(view.own.delta, self.scale)), state

    def for_data(self, classes: int, x: Tensor) -> Backdoor:
        """Itself, if the target is a class, the square fits the images and its value can be stored in them."""
        if self.target >= classes:
            raise SpecError(f"attack.target: {self.target}; give a class of the data, 0 to {classes - 1}")
        if self.value is not None and x.dtype == torch.uint8 and not 0 <= self.value <= 255:
            raise SpecError(f"attack.value: {self.value:g}; the images are stored as bytes, give 0 to 255")
        self.stamp(x[:1])
        return self

    def stamp(self, x: Tensor) -> Tensor:
        """A copy of images (n, channels, height, width) with the trigger on every one."""
        if x.ndim != 4 or min(x.shape[2:]) < self.size:
            raise DataError(
                f"attack.size: a square of {self.size} pixels does not fit inputs of shape {tuple(x.shape[1:])}; "
                "lower it, or use images (channels, height, width)"
            )
        down, across = self.corner.split()
        rows = slice(None, self.size) if down == "top" else slice(-self.size, None)
        columns = slice(None, self.size) if across == "left" else slice(-self.size, None)
        out = x.clone()
        out[:, :, rows, columns] = x.max() if self.value is None else self.value
        return out

    def poison(self, x: Tensor, y: Tensor, predict: Predict | None, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        rows = _draw_rows(len(y), self.sample_fraction, rng)
        stamped, label = self.stamp(x[rows]), torch.full_like(y[rows], self.target)
        if self.copies:
            return torch.cat([x, stamped]), torch.cat([y, label])
        out = x.clone()
        out[rows] = stamped
        return out, _relabel(y, rows, label)

    def success_rate(self, x: Tensor, y: Tensor, predict: Predict) -> float:
        """The share of triggered images of other classes that the model classifies as the target."""
        others = y != self.target
        if not bool(others.any()):
            raise DataError(f"attack success rate: every test label is the target {self.target}; use other test data")
        return float((predict(self.stamp(x[others])).argmax(1) == self.target).double().mean())


POISONS: dict[str, type[Poison]] = {
    "label_flip": LabelFlip,
    "dynamic_label_flip": DynamicLabelFlip,
    "backdoor": Backdoor,
}
