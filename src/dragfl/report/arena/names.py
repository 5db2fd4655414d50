"""Printed names of defences and attacks."""

from __future__ import annotations

from textwrap import wrap

from dragfl.report.arena.matrix import CLEAN
from dragfl.report.labels import PRETTY

TRUSTED = "†"

_PRE_AGGREGATORS = {"arc": "ARC", "nnm": "NNM"}
_COMMON = ("Median", "Trimmed mean", "Geometric median", "Centered clipping", "Norm clipping", "Bucketing")
_ATTACKS = {
    CLEAN: "no attack",
    "alie": "ALIE",
    "ipm": "IPM",
    "min_max": "Min-Max",
    "min_sum": "Min-Sum",
    "fang_krum": "Fang-Krum",
    "fang_trim": "Fang-Trim",
    "adaptive_fltrust": "adaptive (FLTrust)",
    "adaptive_br_drag": "adaptive (BR-DRAG)",
    "non_finite": "non-finite",
}


def defence_name(name: str) -> str:
    """`nnm+trimmed_mean` as `NNM + trimmed mean`."""
    first, *rest = (_one(part) for part in name.split("+"))
    return " + ".join([first, *(part.lower() if part in _COMMON else part for part in rest)])


def _one(name: str) -> str:
    known = PRETTY.get(name) or _PRE_AGGREGATORS.get(name)
    return known or name.rsplit(":", 1)[-1].replace("_", " ").capitalize()


def attack_name(name: str) -> str:
    """`label_flip` as `label flip`."""
    return _ATTACKS.get(name) or name.rsplit(":", 1)[-1].replace("_", " ")


def wrapped(name: str) -> str:
    """A name on several short lines, for a narrow column."""
    return "\n".join(wrap(name, 8, break_long_words=False))
