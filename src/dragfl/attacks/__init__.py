"""Attacks: what malicious clients send instead of their update, or do to their data.

Each attack is a function and a class. The function takes clean updates as a tensor or array and returns the (f, d) that
are sent: attacks that know only themselves take the attackers' own (f, d), the others the honest (h, d) and f. The
class holds the settings for a spec, declares its knowledge and calls the function with its view. Attacks on training
data are in `data_poisoning.py`.

Parameters
----------
own
    (f, d) the clean updates of the attackers.
honest
    (h, d) the updates of the honest clients.
f
    The number of attackers.
n
    The number of clients, attackers included.
root
    (d,) the update of the trusted root data.
c
    The setting c of the attacked BR-DRAG.
rng
    A numpy Generator for the random draws.
z
    For `alie` the number of standard deviations, default by the formula; for `mimic` (d,) the direction.
row
    The honest update that is sent where there is no direction.
w
    (d,) the model that was sent out.
evaluations
    Number of evaluations of the defence in the search.
scale
    The factor of the clean update.
variance
    The variance of the random factor.
"""

from typing import Any

from dragfl.attacks.adaptive_br_drag import AdaptiveBRDrag, adaptive_br_drag
from dragfl.attacks.adaptive_cone import AdaptiveCone, adaptive_cone
from dragfl.attacks.adaptive_fltrust import AdaptiveFLTrust, adaptive_fltrust
from dragfl.attacks.alie import ALIE, alie, alie_z
from dragfl.attacks.data_poisoning import POISONS
from dragfl.attacks.fang_krum import FangKrum, fang_krum
from dragfl.attacks.fang_trim import FangTrim, fang_trim
from dragfl.attacks.free_rider import FreeRider, free_rider
from dragfl.attacks.gaussian import Gaussian, gaussian
from dragfl.attacks.ipm import IPM, ipm
from dragfl.attacks.mimic import Mimic, mimic
from dragfl.attacks.min_max import MinMax, MinSum, min_max, min_sum
from dragfl.attacks.non_finite import NonFinite, non_finite
from dragfl.attacks.random_scaling import RandomScaling, backdoor_scale, random_scaling
from dragfl.attacks.sign_flip import SignFlip, sign_flip

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
    "adaptive_cone": AdaptiveCone,
    "non_finite": NonFinite,
    **POISONS,
}

__all__ = [
    "ALIE",
    "ATTACKS",
    "IPM",
    "AdaptiveBRDrag",
    "AdaptiveCone",
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
    "adaptive_cone",
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
