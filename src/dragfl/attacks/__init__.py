"""What attackers send instead of their update: functions on updates, and the objects a spec names.

The functions take the attackers' clean updates as an (f, d) tensor and return the (f, d) that are sent.
"""

from dragfl.attacks.reversal import SignFlip, sign_flip
from dragfl.attacks.scaling import RandomScaling, random_scaling

ATTACKS = {"random_scaling": RandomScaling, "sign_flip": SignFlip}

__all__ = ["ATTACKS", "RandomScaling", "SignFlip", "random_scaling", "sign_flip"]
