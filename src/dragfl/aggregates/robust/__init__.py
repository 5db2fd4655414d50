"""Byzantine-robust rules: one family, one file. `contract.py` describes what a rule has to define."""

from dragfl.aggregates.robust.bulyan import Bulyan
from dragfl.aggregates.robust.caf import CAF
from dragfl.aggregates.robust.chain import Chain
from dragfl.aggregates.robust.clipping import CenteredClipping, NormClipping
from dragfl.aggregates.robust.coordinate_wise import MeaMed, Median, TrimmedMean
from dragfl.aggregates.robust.dnc import DnC
from dragfl.aggregates.robust.flame import Flame
from dragfl.aggregates.robust.fools_gold import FoolsGold
from dragfl.aggregates.robust.geometric_median import GeometricMedian
from dragfl.aggregates.robust.krum import Krum, MultiKrum
from dragfl.aggregates.robust.mda import MDA
from dragfl.aggregates.robust.preaggregation import ARC, NNM, Bucketing
from dragfl.aggregates.robust.rlr import RLR
from dragfl.aggregates.robust.sign_guard import SignGuard

__all__ = ["PREAGGREGATORS", "ROBUST", "Chain"]

ROBUST = {
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "mea_med": MeaMed,
    "krum": Krum,
    "multi_krum": MultiKrum,
    "bulyan": Bulyan,
    "geometric_median": GeometricMedian,
    "mda": MDA,
    "caf": CAF,
    "norm_clipping": NormClipping,
    "centered_clipping": CenteredClipping,
    "dnc": DnC,
    "sign_guard": SignGuard,
    "flame": Flame,
    "fools_gold": FoolsGold,
    "rlr": RLR,
    "chain": Chain,
}

PREAGGREGATORS = {"nnm": NNM, "bucketing": Bucketing, "arc": ARC}
