"""Global settings of the process (threads, generators, warnings, signals) are the same before and after a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dragfl.engine.threads import one_thread
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
