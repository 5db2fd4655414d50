"""What attackers send instead of their update, or do to their data: functions on updates, and what a spec names.

A function takes clean updates as a tensor or array and returns the (f, d) that are sent, of the same kind: attacks that
know only themselves take the attackers' own (f, d), the others the honest (h, d) and f. The objects that a spec names
are thin: they hold settings, say what they must know, and call the function with what their view holds. Poisons of data
(`poisons.py`) are attacks too.
"""

from typing import Any

from dragfl.attacks.against_drag import AdaptiveBRDrag, adaptive_br_drag
from dragfl.attacks.against_krum import FangKrum, fang_krum
from dragfl.attacks.against_trim import FangTrim, fang_trim
from dragfl.attacks.against_trust import AdaptiveFLTrust, adaptive_fltrust
from dragfl.attacks.copying import Mimic, mimic
from dragfl.attacks.free_riding import FreeRider, free_rider
from dragfl.attacks.hiding import MinMax, MinSum, min_max, min_sum
from dragfl.attacks.infinities import NonFinite, non_finite
from dragfl.attacks.inner_product import IPM, ipm
from dragfl.attacks.little import ALIE, alie, alie_z
from dragfl.attacks.noise import Gaussian, gaussian
from dragfl.attacks.poisons import POISONS
from dragfl.attacks.reversal import SignFlip, sign_flip
from dragfl.attacks.scaling import RandomScaling, backdoor_scale, random_scaling

ATTACKS: dict[str, Any] = {
    "random_scaling": RandomScaling,
    "sign_flip": SignFlip,
    "gaussian": Gaussian,
    "free_rider": FreeRider,
    "alie": ALIE,
    "ipm": IPM,
    "min_max": MinMax,
    "min_sum": MinSum,
    "mimic": Mimic,
    "fang_krum": FangKrum,
    "fang_trim": FangTrim,
    "adaptive_fltrust": AdaptiveFLTrust,
    "adaptive_br_drag": AdaptiveBRDrag,
    "non_finite": NonFinite,
    **POISONS,
}

__all__ = [
    "ALIE",
    "ATTACKS",
    "IPM",
    "AdaptiveBRDrag",
    "AdaptiveFLTrust",
    "FangKrum",
    "FangTrim",
    "FreeRider",
    "Gaussian",
    "Mimic",
    "MinMax",
    "MinSum",
    "NonFinite",
    "RandomScaling",
    "SignFlip",
    "adaptive_br_drag",
    "adaptive_fltrust",
    "alie",
    "alie_z",
    "backdoor_scale",
    "fang_krum",
    "fang_trim",
    "free_rider",
    "gaussian",
    "ipm",
    "mimic",
    "min_max",
    "min_sum",
    "non_finite",
    "random_scaling",
    "sign_flip",
]
