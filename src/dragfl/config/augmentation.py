"""`clients.augment`: built-in names and `module:function`, joined by "+", or a function from Python."""

from __future__ import annotations

from typing import Any

from dragfl.config.registry import look_up
from dragfl.errors import SpecError
from dragfl.own_code import spec_name
from dragfl.training.augment import AUGMENTATIONS, Augment, Chain

WHERE = "clients.augment"
NONE = "none"


def make_augment(given: Any) -> Augment | None:
    """The function that a value of `clients.augment` stands for; None for "none"."""
    if given == NONE:
        return None
    if isinstance(given, str):
        parts = [_named(name.strip()) for name in given.split("+")]
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))
    if not callable(given) or isinstance(given, type):
        known = ", ".join((NONE, *AUGMENTATIONS))
        raise SpecError(f"{WHERE}: {given!r} is not a function; give one (x, rng) -> x, module:function, or {known}")
    function: Augment = given
    return function


def _named(name: str) -> Augment:
    found = look_up(WHERE, name, {**AUGMENTATIONS, NONE: None})
    if found is None:
        raise SpecError(f"{WHERE}: '{NONE}' cannot be combined with others; remove it")
    if not callable(found) or isinstance(found, type):
        raise SpecError(f"{WHERE}: {name} is a {type(found).__name__}; it must be a function (x, rng) -> x")
    function: Augment = found
    return function


def describe_augment(given: Any) -> str:
    """The value as a spec writes it; a function that cannot be imported by name is `object:NAME`."""
    return given if isinstance(given, str) else spec_name(given)
