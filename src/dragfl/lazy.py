"""`from dragfl.lazy import Tensor, torch`: torch, imported when one of its names is first used.

Importing torch takes more than a second. `dragfl list`, `--help` and the check of a spec read the hyper-parameters of
rules and answer at once, so the files that define rules name torch through this module.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:

    class LazyModule(ModuleType):
        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module(self.__name__), name)
            setattr(self, name, value)  # later look-ups are plain attribute access
            return value

    class Tensor:
        """For annotations only; `isinstance` needs `torch.Tensor`."""

    torch = LazyModule("torch")
