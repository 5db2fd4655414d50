"""Property tests for user-defined parts: the contracts that the built-in parts satisfy.

    from dragfl.testing import check_aggregate
    check_aggregate(MyRule(strength=0.5))

A violation raises `BrokenContract`, an AssertionError with the property, the values seen and the contract. The
properties are the keys of `AGGREGATE`, `CORRECTION`, `SERVER_STEP` and `ATTACK`; `skip={"extremes"}` skips one by name.
`check(part)` returns what holds and what does not, for any kind of part, as `dragfl check` prints it. No test framework
is needed.

Parameters
----------
rule, attack, correction, server
    The part, an object with its settings.
dim
    Number of parameters of the test updates.
attackers
    Number of malicious clients.
clients
    Number of clients.
seed
    Of the test updates.
skip
    Names of properties that are not checked.
"""

from dragfl.testing.aggregate import AGGREGATE, check_aggregate
from dragfl.testing.attack import ATTACK, check_attack
from dragfl.testing.checker import BrokenContract
from dragfl.testing.correction import CORRECTION, check_correction
from dragfl.testing.findings import Finding
from dragfl.testing.parts import check
from dragfl.testing.server_step import SERVER_STEP, check_server_step

__all__ = [
    "AGGREGATE",
    "ATTACK",
    "CORRECTION",
    "SERVER_STEP",
    "BrokenContract",
    "Finding",
    "check",
    "check_aggregate",
    "check_attack",
    "check_correction",
    "check_server_step",
]
