"""What clients do beyond plain SGD: one paper, one file."""

from dragfl.corrections.adabest import AdaBest
from dragfl.corrections.fedcm import FedCM
from dragfl.corrections.feddc import FedDC
from dragfl.corrections.feddyn import FedDyn
from dragfl.corrections.mime import Mime
from dragfl.corrections.none import NoCorrection
from dragfl.corrections.prox import FedProx
from dragfl.corrections.scaffold import Scaffold

CORRECTIONS = {
    "none": NoCorrection,
    "prox": FedProx,
    "scaffold": Scaffold,
    "adabest": AdaBest,
    "feddyn": FedDyn,
    "feddc": FedDC,
    "mime": Mime,
    "fedcm": FedCM,
}
