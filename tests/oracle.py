"""ByzFL's aggregators and attacks, as an independent oracle: `from tests.oracle import byzfl`.

`import byzfl` pulls torchvision, which has no build for CPU torch. Its aggregators and attacks need numpy, scipy and
torch only, so an empty module whose `__path__` is the installed folder stands in for the package. The Makefile installs
it with `pip install --no-deps byzfl==0.0.11`.

ByzFL converts torch input to float32, that ARC and Clipping write into their argument (give them copies),
and that CAF and SMEA start from a global generator.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any


def load() -> Any:
    """(aggregators, preaggregators, attacks) of ByzFL as one namespace, or None if it is not installed."""
    if "byzfl" not in sys.modules:
        found = importlib.util.find_spec("byzfl")
        if found is None or not found.submodule_search_locations:
            return None
        stand_in = ModuleType("byzfl")
        stand_in.__path__ = list(found.submodule_search_locations)
        sys.modules["byzfl"] = stand_in
    names: dict[str, Any] = {}
    for module in ("aggregators.aggregators", "aggregators.preaggregators", "attacks.attacks"):
        loaded = importlib.import_module(f"byzfl.{module}")
        names |= {n: v for n, v in vars(loaded).items() if isinstance(v, type) and v.__module__ == loaded.__name__}
    return SimpleNamespace(**names)


byzfl = load()
