"""How the updates of a round become one step: one family, one file."""

from dragfl.aggregates.auto_momentum import AutoMomentum
from dragfl.aggregates.boba import Boba
from dragfl.aggregates.br_drag import BRDrag
from dragfl.aggregates.cone_drag import ConeDrag
from dragfl.aggregates.drag import Drag
from dragfl.aggregates.fedexp import FedExP
from dragfl.aggregates.fednova import FedNova
from dragfl.aggregates.fltrust import FLTrust
from dragfl.aggregates.mean import Mean
from dragfl.aggregates.robust import ROBUST
from dragfl.aggregates.root_only import RootOnly

AGGREGATES = {
    "mean": Mean,
    "drag": Drag,
    "br_drag": BRDrag,
    "cone_drag": ConeDrag,
    "fltrust": FLTrust,
    "boba": Boba,
    "root_only": RootOnly,
    "fednova": FedNova,
    "fedexp": FedExP,
    "auto_momentum": AutoMomentum,
    **ROBUST,
}
