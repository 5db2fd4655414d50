"""Mimic: all attackers copy one honest client, whose update then counts many times.

S. P. Karimireddy, L. He, M. Jaggi, Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022.

The client to copy is the one furthest along z, the direction in which honest updates differ most: argmax_i <g_i, z>. z
is estimated during a warm-up of rounds t = 0, 1, ... (Oja's rule on a running mean):

    m <- t/(1+t) m + mean_i g_i / (1+t)
    z <- unit(t/(1+t) z + unit(sum_i <g_i - m, z> (g_i - m)) / (1+t))

After it the client that was furthest stays the one that is copied; where it is not sampled, the furthest among those
that are. The attackers send an honest update, so no rule can detect it; it does harm only with heterogeneous clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dragfl.arithmetic import combine, finite_rows, row_dots, unit
from dragfl.arrays import Array, vector
from dragfl.attacks.common import clean_rows, copies
from dragfl.errors import SettingError, SpecError
from dragfl.lazy import Tensor, torch
from dragfl.types import FederationInfo, Knowledge, RoundContext, Updates, View


def mimic(honest: Array, f: int, z: Array | None = None, row: int = 0) -> Array:
    """One of the honest updates (h, d), from all f attackers: the furthest along z, or without z the given row."""
    X = clean_rows("mimic", honest, f)
    if z is not None:
        row = int(row_dots(X, vector("mimic", "z", z, X)).argmax())
    if not -len(X) <= row < len(X):
        raise SpecError(f"mimic: row={row} of {len(X)} honest updates; give one that is there")
    return copies(X[row], f, honest)


@dataclass(frozen=True)
class MimicState:
    mean: Tensor | None = None  # m
    z: Tensor | None = None
    rounds: int = 0  # t
    client: int | None = None  # the client to copy


def _estimate_direction(state: MimicState, X: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor]:
    """(m, z) after one more round of honest updates; before the first, z is a random direction."""
    t = state.rounds
    z = torch.from_numpy(draws.standard_normal(X.shape[1])).to(X) if state.z is None else state.z
    mean = X.mean(0) if state.mean is None else (t * state.mean + X.mean(0)) / (1 + t)
    centred = X - mean
    pull = unit(combine(row_dots(centred, z).unsqueeze(0), centred)[0])
    if pull is None:  # the honest updates do not differ: nothing to learn
        return mean, z
    turned = unit((t * z + pull) / (1 + t))
    return mean, z if turned is None else turned


@dataclass(frozen=True)
class Mimic:
    """Sends copies of one honest client's update, which then counts many times.

    | argument | symbol |
    |---|---|
    | warm_up | rounds in which z is estimated and the client to copy is chosen again |
    | client | always copy this one instead; where it is not sampled, the first that is |
    """

    warm_up: int = 20
    client: int | None = None

    knowledge: ClassVar[Knowledge] = "omniscient"

    def __post_init__(self) -> None:
        if self.warm_up < 1:
            raise SettingError("mimic", "warm_up", f"{self.warm_up}; give at least one round")
        if self.client is not None and self.client < 0:
            raise SettingError(
                "mimic", "client", f"{self.client}; give the number of a client, from 0, or leave it out"
            )

    def init(self, info: FederationInfo) -> MimicState:
        return MimicState()

    def craft(self, state: MimicState, view: View, context: RoundContext) -> tuple[Updates, MimicState]:
        honest = view.honest.select(finite_rows(view.honest.norm)) if view.honest is not None else None
        if honest is None or not len(honest):
            return view.own, state
        X, names, f = honest.delta, honest.client.tolist(), len(view.own)
        if self.client is None and state.rounds < self.warm_up:
            mean, z = _estimate_direction(state, X, context.rng("attack"))
            furthest = names[int(row_dots(X, z).argmax())]
            state = MimicState(mean, z, state.rounds + 1, furthest)
        client = state.client if self.client is None else self.client
        sent = mimic(X, f, row=names.index(client)) if client in names else mimic(X, f, z=state.z)
        return replace(view.own, delta=sent), state
