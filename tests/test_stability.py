"""docs/stability.md: every public name that it lists exists, and every public name of `dragfl` is listed."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

import dragfl
from tests.test_docs import section

PUBLIC = section("stability.md", "Public names")
INTERNAL = PUBLIC.partition("Everything else is internal")[2]
LISTED = sorted(set(re.findall(r"`(dragfl(?:\.\w+)+)`", PUBLIC)))


def resolve(name: str) -> Any:
    """The module or object of a dotted name."""
    found: Any = dragfl
    for i, part in enumerate(name.split(".")[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = import_module(".".join(name.split(".")[:i]))
    return found


@pytest.mark.parametrize("name", LISTED)
def test_a_listed_name_exists(name: str) -> None:
    resolve(name)


def test_every_name_of_the_package_is_listed() -> None:
    """The table has exactly the names of `dragfl.__all__`."""
    rows = [line for line in PUBLIC.splitlines() if line.startswith("| `dragfl.")]
    assert {name for row in rows for name in re.findall(r"`dragfl\.(\w+)`", row)} == set(dragfl.__all__)


def test_no_name_is_public_and_internal() -> None:
    internal = set(re.findall(r"`(dragfl\.\w+)`", INTERNAL))
    public = {name for name in LISTED if f"`{name}`" in PUBLIC.partition("Everything else")[0]}
    assert internal and not {name for name in public if any(name.startswith(module) for module in internal)}


def test_a_misspelt_name_is_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        resolve("dragfl.functionals")
