"""The words that a user's own part declares (needs, knowledge, own_iterate), checked when the spec is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from dragfl.errors import SpecError, nearest
from dragfl.own_code import is_own, name_of, named_errors
from dragfl.types import CorrectionNeed, FederationInfo, Knowledge, Need, OwnModel, UsesDirections

PROBE = FederationInfo(dim=1, clients=1, per_round=1, segments=(0, 1))  # to ask a part for its needs
FIELD_KINDS = ("vector", "scalar")
NEEDS = {"aggregate": get_args(Need), "correction": get_args(CorrectionNeed)}


def needs_of(part: Any) -> frozenset[str]:
    """The inputs that a part needs in its first round."""
    with named_errors(name_of(part)):
        return frozenset(part.needs(part.init(PROBE)))


def check_words(where: str, part: Any, kind: str) -> Any:
    """Return the part; raise if it declares a word that the engine does not know."""
    if not is_own(part):
        return part
    if kind in NEEDS:
        _check(where, part, "needs()", needs_of(part), NEEDS[kind])
    if kind == "aggregate" and "directions" in needs_of(part) and not isinstance(part, UsesDirections):
        raise SpecError(
            f"{where}: {name_of(part)} needs directions and does not say how they are trained; "
            "give it a property direction_settings that returns a dragfl.types.DirectionSettings"
        )
    if kind == "correction":
        for layout in ("fields", "sends"):
            declared = getattr(part, layout)
            if not isinstance(declared, Mapping):
                raise SpecError(f"{where}: {layout} of {name_of(part)} is {declared!r}; give a dictionary")
            _check(where, part, layout, declared.values(), FIELD_KINDS)
    if kind == "attack":
        _check(where, part, "knowledge", [part.knowledge], get_args(Knowledge))
    if hasattr(part, "own_iterate"):
        _check(where, part, "own_iterate", [part.own_iterate], get_args(OwnModel))
    return part


def _check(where: str, part: Any, what: str, words: Iterable[Any], valid: tuple[str, ...]) -> None:
    for word in words:
        if word not in valid:
            choices = ", ".join(map(repr, valid))
            hint = close if "did you mean" in (close := nearest(str(word), valid)) else ""
            raise SpecError(f"{where}: {what} of {name_of(part)} has {word!r}; choose among {choices}{hint}")
