"""Global settings of the process (threads, generators, warnings, signals) are the same before and after a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from dragfl.engine.threads import cores_for, one_thread
from tests.conftest import python

SETTINGS = """
import logging, random, signal, sys, warnings
import numpy as np, torch
def settings():
    return (
        torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
        torch.initial_seed(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(),
        list(warnings.filters), logging.getLogger().level, list(logging.getLogger().handlers),
        logging.root.manager.disable,
        signal.getsignal(signal.SIGINT), list(sys.path), torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled, sys.getswitchinterval(),
    )
"""


def test_importing_and_running_change_no_global_setting(tmp_path: Path) -> None:
    code = SETTINGS + (
        "torch.set_num_threads(2); torch.manual_seed(5)\n"
        "before = settings()\n"
        "import dragfl\n"
        "for name in dragfl.__all__: getattr(dragfl, name)\n"
        "assert settings() == before, 'import'\n"
        "e = dragfl.load({'rounds': 2, 'algorithm': {'name': 'br_drag'}, 'root': {'size': 50}, "
        "'attack': {'name': 'random_scaling', 'attackers': 3}, 'model': {'hidden': 8}})\n"
        "dragfl.run(e, 'r')\n"
        "assert settings() == before, 'run'\n"
        "print('unchanged')"
    )
    assert python(code, tmp_path) == "unchanged\n"


def test_the_number_of_threads_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyError), one_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_a_core_for_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the workers need every core; with fewer workers, or one core, the system finds free ones."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert cores_for(2) == [3, 5]
    assert cores_for(3) == [3, 5, 3]
    assert cores_for(1) == [None]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert cores_for(2) == [None, None]
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert cores_for(2) == [None, None]
