"""A module that is imported when one of its names is first used.

Importing torch takes more than a second. The files that state a rule's hyper-parameters are read by
`dragfl list`, by `--help` and by the spec check, which must answer at once, so those files name torch like this:

    if TYPE_CHECKING:
        import torch
    else:
        from dragfl.lazy import torch
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # later look-ups are plain attribute access
        return value


torch = LazyModule("torch")
