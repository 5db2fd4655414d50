"""dragfl on Flower: strategies for existing Flower apps, and dragfl's own client and server.

The only package that imports flwr. Its public names are imported at first use.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from dragfl.errors import DragflWarning, SpecError

if TYPE_CHECKING:
    from dragfl.flower.client import client_app
    from dragfl.flower.drag_strategy import BRDragStrategy, DragStrategy
    from dragfl.flower.serve import server_app
    from dragfl.flower.strategy import AlgorithmStrategy

TESTED = ("1.41",)  # minor versions of flwr that this version of dragfl was tested with

_HOME = {
    "AlgorithmStrategy": "dragfl.flower.strategy",
    "BRDragStrategy": "dragfl.flower.drag_strategy",
    "DragStrategy": "dragfl.flower.drag_strategy",
    "client_app": "dragfl.flower.client",
    "server_app": "dragfl.flower.serve",
}
__all__ = ["AlgorithmStrategy", "BRDragStrategy", "DragStrategy", "client_app", "server_app"]


def _check_version() -> None:
    """Raise if flwr is not installed; warn if its version was not tested."""
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        raise SpecError("dragfl.flower: flwr is not installed; install it with: pip install 'dragfl[flower]'") from None
    if ".".join(installed.split(".")[:2]) not in TESTED:
        tested = ", ".join(TESTED)
        warnings.warn(f"flwr {installed}: not tested with this version of dragfl (tested: {tested})", DragflWarning, 2)


_check_version()


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'dragfl.flower' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
