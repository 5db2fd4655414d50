"""What attackers send instead of their update, or do to their data: functions on updates, and what a spec names.

The functions take the attackers' clean updates as an (f, d) tensor or array and return the (f, d) that are sent.
Poisons of data (`poisons.py`) are attacks too.
"""

from typing import Any

from dragfl.attacks.poisons import POISONS
from dragfl.attacks.reversal import SignFlip, sign_flip
from dragfl.attacks.scaling import RandomScaling, random_scaling

ATTACKS: dict[str, Any] = {"random_scaling": RandomScaling, "sign_flip": SignFlip, **POISONS}

__all__ = ["ATTACKS", "RandomScaling", "SignFlip", "random_scaling", "sign_flip"]
