"""Verdicts on the claims about the theory."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dragfl.reproduction.theory_claims import theory_rows
from dragfl.reproduction.verdicts import Verdict

MEASURED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "theory" / "fixed-points.json").read_text())


def verdicts(measured: dict[str, Any]) -> dict[str, Verdict]:
    return {row.claim: row.verdict for row in theory_rows(measured)}


def test_the_committed_measurements() -> None:
    """With a fixed c the paper's rate fails: C34b."""
    held = dict.fromkeys(("C32", "C33", "C34a", "C34c", "C34d"), Verdict.PASS)
    assert verdicts(MEASURED) == held | {"C34b": Verdict.FAIL}


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("C33", lambda m: m["circles"]["line"].__setitem__(0, 0.5)),
        ("C33", lambda m: m["angles"].update(line=0.26)),
        ("C34a", lambda m: m["rates"]["curves"]["covered"].update(interval=[-0.5, -0.3])),
        ("C34c", lambda m: m["gradient_floors"][0].update(slope=1.0)),
        ("C34d", lambda m: m["gradient_floors"][1].update(slope=1.0)),
    ],
)
def test_other_measurements_fail(claim: str, change: Any) -> None:
    """The slope of |grad f|^2 is twice that of |grad f|, and that over sigma_G half of that over sigma_G^2."""
    measured = copy.deepcopy(MEASURED)
    change(measured)
    assert verdicts(measured)[claim] is Verdict.FAIL
