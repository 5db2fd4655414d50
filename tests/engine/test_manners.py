"""dragfl is a guest in the process: what it finds there it leaves as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import dragfl
from dragfl.engine.threads import one_thread
from tests.conftest import Load, python

LOOK = """
import logging, random, signal, sys, warnings
import numpy as np, torch
def look():
    return (
        torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
        torch.initial_seed(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(),
        list(warnings.filters), logging.getLogger().level, list(logging.getLogger().handlers),
        logging.root.manager.disable,
        signal.getsignal(signal.SIGINT), list(sys.path), torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled, sys.getswitchinterval(),
    )
"""


def test_importing_and_running_leave_the_process_as_it_was(tmp_path: Path) -> None:
    code = LOOK + (
        "torch.set_num_threads(2); torch.manual_seed(5)\n"
        "before = look()\n"
        "import dragfl\n"
        "for name in dragfl.__all__: getattr(dragfl, name)\n"
        "assert look() == before, 'import'\n"
        "e = dragfl.load({'rounds': 2, 'algorithm': {'name': 'br_drag'}, 'root': {'size': 50}, "
        "'attack': {'name': 'random_scaling', 'attackers': 3}, 'model': {'hidden': 8}})\n"
        "dragfl.run(e, 'r')\n"
        "assert look() == before, 'run'\n"
        "print('as it was')"
    )
    assert python(code, tmp_path) == "as it was\n"


def test_threads_are_given_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyError), one_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_a_user_s_module_is_not_changed(experiment: Load) -> None:
    module = nn.Linear(6, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    pointer = module.weight.data_ptr()
    simulation = dragfl.simulate(experiment(model={"name": module}))
    start = simulation.state.w.clone()
    list(simulation)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.weight.data_ptr() == pointer
    assert module.training
    assert torch.equal(start[:18].reshape(3, 6), before["weight"]), "a module is the model to start from"


def test_drop_out_draws_by_round_and_client(experiment: Load) -> None:
    """A model that draws as it computes: same bits twice, the same in other blocks, torch's generator untouched."""

    def make(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, classes))

    finals = []
    for block, seed in ((20, 1), (20, 2), (1, 3)):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        simulation = dragfl.simulate(experiment(model={"name": make}, engine={"block": block}))
        list(simulation)
        assert torch.equal(torch.get_rng_state(), state)
        finals.append(simulation.state.w)
    assert torch.equal(finals[0], finals[1])
    torch.testing.assert_close(finals[2], finals[0], atol=2e-6, rtol=0)
