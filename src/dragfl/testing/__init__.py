"""Property tests for a part of your own: does it keep the contract that the built-in parts keep?

    from dragfl.testing import check_aggregate
    check_aggregate(MyRule(strength=0.5))

A part that breaks its contract raises `BrokenContract`, an AssertionError that names the property, the
numbers seen and what the contract says. The properties are the keys of `AGGREGATE`, `CORRECTION` and
`ATTACK`; one that a part does not promise is left out by name, as in `skip={"extremes"}`. No test framework
is needed.
"""

from dragfl.testing.aggregate import AGGREGATE, check_aggregate
from dragfl.testing.attack import ATTACK, check_attack
from dragfl.testing.bench import BrokenContract
from dragfl.testing.correction import CORRECTION, check_correction

__all__ = [
    "AGGREGATE",
    "ATTACK",
    "CORRECTION",
    "BrokenContract",
    "check_aggregate",
    "check_attack",
    "check_correction",
]
