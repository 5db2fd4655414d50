"""An independent reference of local training: a module, torch.optim.SGD and the minibatches of the same address."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as nnf
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dragfl.rng import rng
from dragfl.runs.simulation import Simulation


def sgd(module: nn.Module, w: Tensor, x: Tensor, y: Tensor, batches: list[NDArray[np.int64]], lr: float) -> Tensor:
    """w_trained - w."""
    module = copy.deepcopy(module)
    vector_to_parameters(w.clone(), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    for batch in batches:
        optimizer.zero_grad()
        nnf.cross_entropy(module(x[batch]), y[batch]).backward()
        optimizer.step()
    return parameters_to_vector(module.parameters()).detach() - w


def client_update(simulation: Simulation, w: Tensor, t: int, client: int) -> Tensor:
    """The update of one client in round t, with minibatches drawn with replacement."""
    fed, spec = simulation.federation, simulation.experiment
    mine = fed.worker.split.samples_of(client)
    steps, size, dataset = spec.clients.local_steps, spec.clients.batch_size, spec.dataset
    drawn = rng(spec.seed, "batch", t, client).integers(0, len(mine), (steps, size))
    return sgd(fed.model.module, w, dataset.x, dataset.y, [mine[batch] for batch in drawn], spec.clients.lr)


def cohort_updates(simulation: Simulation, w: Tensor, t: int) -> Tensor:
    """(M, d) updates when every client takes part."""
    return torch.stack([client_update(simulation, w, t, m) for m in range(simulation.experiment.clients.total)])


def root_update(simulation: Simulation, w: Tensor, t: int) -> Tensor:
    """The server's update on the first `root.size` samples of an addressed choice."""
    spec = simulation.experiment
    dataset = spec.dataset
    chosen = np.sort(rng(spec.seed, "root").choice(len(dataset.y), spec.root.size, replace=False))
    drawn = rng(spec.seed, "root", t).integers(0, len(chosen), (spec.clients.local_steps, spec.clients.batch_size))
    return sgd(simulation.federation.model.module, w, dataset.x, dataset.y, [chosen[b] for b in drawn], spec.clients.lr)
