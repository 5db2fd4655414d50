"""Call what makes a model: a function or an nn.Module class with an ordinary constructor.

Parameters with these names get what the data have; all others are settings of `[model]`:

| names | value |
|---|---|
| `shape`, `input_shape` | the shape of one input, such as (1, 28, 28) |
| `in_features` | the number of values of one input |
| `in_channels` | the first number of the shape |
| `classes`, `num_classes`, `n_classes`, `out_features` | the number of classes |

A function with other names is called as `make(shape, classes, **settings)`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from dragfl.errors import SpecError
from dragfl.own_code import name_of, named_errors, parameters_of

MODEL_INPUTS: dict[str, Callable[[tuple[int, ...], int], Any]] = {
    "shape": lambda shape, classes: shape,
    "input_shape": lambda shape, classes: shape,
    "in_features": lambda shape, classes: math.prod(shape),
    "in_channels": lambda shape, classes: shape[0],
    "classes": lambda shape, classes: classes,
    "num_classes": lambda shape, classes: classes,
    "n_classes": lambda shape, classes: classes,
    "out_features": lambda shape, classes: classes,
}


def call_model(make: Any, shape: tuple[int, ...], classes: int, settings: Mapping[str, Any]) -> Any:
    """What `make` returns for inputs of this shape. An error in its body is its own, never one of the call."""
    parameters = parameters_of("model.name", make)
    by_name = {name: value(shape, classes) for name, value in MODEL_INPUTS.items() if name in parameters}
    by_place = ((shape, classes), dict(settings))
    calls = [((), by_name | dict(settings)), by_place]
    if any(p.kind == p.VAR_POSITIONAL for p in parameters.values()):
        calls.reverse()
    tried, short = [], getattr(make, "__name__", name_of(make))
    for positional, named in calls:
        try:
            inspect.signature(make).bind(*positional, **named)
        except TypeError as error:
            words = [*map(repr, positional), *(f"{name}={value!r}" for name, value in named.items())]
            tried.append(f"{short}({', '.join(words)}): {error}")
            continue
        built_in = str(getattr(make, "__module__", "")).startswith("dragfl.")
        with nullcontext() if built_in else named_errors(f"model: {name_of(make)}"):
            return make(*positional, **named)
    advice = f"name its parameters among {', '.join(MODEL_INPUTS)}, and set the others in [model]"
    raise SpecError(f"model: {name_of(make)} cannot be called; tried {'; '.join(dict.fromkeys(tried))}; {advice}")
