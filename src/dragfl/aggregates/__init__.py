"""How the updates of a round become one step: one family, one file."""

from dragfl.aggregates.br_drag import BRDrag
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
    "fltrust": FLTrust,
    "root_only": RootOnly,
    "fednova": FedNova,
    "fedexp": FedExP,
    **ROBUST,
}
