"""The generated reference: up to date, complete, and every parameter is explained."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import dragfl
from dragfl.config.spec import TABLES

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[1] / "docs" / "make_reference.py"))
MODULES, public_names, parameters, sections = (
    SCRIPT[name] for name in ("MODULES", "public_names", "parameters", "sections")
)


def test_the_pages_are_up_to_date() -> None:
    pages = SCRIPT["pages"]()
    for path, text in pages.items():
        assert path.is_file() and path.read_text() == text, f"{path.name}: run python docs/make_reference.py"
    assert set(SCRIPT["REFERENCE"].glob("*.md")) == set(pages)


def test_every_public_name_has_a_place() -> None:
    """The names of the package: its functions and classes, and the modules with a page of their own."""
    modules = {name.partition(".")[2] for name in MODULES}
    assert set(dragfl.__all__) <= {*public_names("dragfl"), *modules}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module: str) -> None:
    assert not [name for name, thing in public_names(module).items() if not (thing.__doc__ or "").strip()]


@pytest.mark.parametrize("module", MODULES)
def test_every_parameter_is_explained(module: str) -> None:
    shared = sections(SCRIPT["docstring"](module)).get("Parameters", {})
    unexplained = [
        f"{name}: {parameter.name}"
        for name, thing in public_names(module).items()
        for parameter in parameters(thing, shared)
        if not parameter.text
    ]
    assert not unexplained


def test_every_key_of_a_spec_is_explained() -> None:
    text = SCRIPT["spec_page"]()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert not [row for row in rows if not row.split(" | ")[1].strip()]
    assert "| `lr` | local learning rate | `0.1` |" in text
    assert {f"[{name}]" for name in TABLES if name not in ("algorithm", "algorithms", "attacks")} <= {
        line.strip("# `") for line in text.splitlines() if line.startswith("## ")
    }


def test_the_sections_of_a_docstring() -> None:
    doc = (
        "Adds.\n\nParameters\n----------\na, b : float\n    Two\n    numbers.\n*rest\n    More.\n\n"
        "Attributes\n----------\ntotal\n    Sum."
    )
    assert sections(doc) == {
        "Parameters": {"a": "Two numbers.", "b": "Two numbers.", "rest": "More."},
        "Attributes": {"total": "Sum."},
    }


def test_where_an_explanation_comes_from() -> None:
    """The section of the function, the table of the part of its name, or the text that all functions share."""

    def drag(c: float, reference: str, x: int = 3, unknown: int = 0) -> None:
        """Drags by `x`.

        Parameters
        ----------
        reference
            The direction.
        """

    rows = {row.name: row for row in parameters(drag, {"reference": "shared", "c": "shared"})}
    assert rows["reference"].text == "The direction."
    assert rows["c"].text == "c in [0, 1]; a number or a schedule"  # of dragfl.aggregates.Drag
    assert (rows["x"].text, rows["x"].default) == ("see above", "`3`")
    assert rows["unknown"].text == ""


def test_commands_and_their_arguments() -> None:
    text = SCRIPT["command_page"]()
    assert "## `dragfl deploy init`" in text and "## `dragfl data show`" in text
    assert "| `[key=value ...]` | override a setting, e.g. clients.lr=0.05 |" in text
    assert "| `--quiet` |" in text and "| `--jobs N` |" in text
