"""What a spec has that the theorem does not cover, besides c and the learning rate."""

from __future__ import annotations

from collections.abc import Iterator

from dragfl.aggregates.drag import Drag
from dragfl.config.spec import Experiment
from dragfl.corrections.none import NoCorrection
from dragfl.errors import SpecError
from dragfl.schedules import Schedule
from dragfl.server_steps.sgd import SGD


def drag_of(experiment: Experiment) -> Drag:
    """The DRAG aggregate of an experiment, or an error that names what to set."""
    rule, name = experiment.algorithm.aggregate, experiment.algorithm.name
    if isinstance(rule, Drag):
        return rule
    others = "; for BR-DRAG see docs/fixed-points.md" if name == "br_drag" else ""
    raise SpecError(
        f"algorithm.name: '{name}' has no bound here: Theorem 1 is about DRAG and its c; set algorithm.name=drag "
        f"(with algorithm.c=0 it is FedAvg){others}"
    )


def outside_the_theorem(experiment: Experiment) -> tuple[str, ...]:
    """The settings for which the theorem is not stated; the bound says nothing about such a run."""
    return tuple(_outside(experiment, drag_of(experiment)))


def _outside(experiment: Experiment, rule: Drag) -> Iterator[str]:
    clients, parts = experiment.clients, experiment.algorithm
    if isinstance(rule.c, Schedule) or isinstance(clients.lr, Schedule):
        yield "c or clients.lr is a schedule; the largest value is checked, and no bound is drawn"
    if rule.divergence != "linear":
        yield f"algorithm.divergence = '{rule.divergence}'; the theorem has the linear form"
    if not isinstance(parts.correction, NoCorrection):
        yield f"algorithm.correction = '{type(parts.correction).__name__}'; the theorem has plain local SGD"
    if not (isinstance(parts.server, SGD) and parts.server.lr == 1.0):
        yield "the server step; in the theorem the model moves by the aggregate itself"
    if experiment.attack is not None:
        yield "[attack]; the theorem has no malicious clients"
    if clients.local_epochs is not None or isinstance(clients.local_steps, tuple):
        yield "the clients make different numbers of local steps; the largest is used as U"
    for key in ("momentum", "weight_decay", "clip_norm"):
        if getattr(clients, key):
            yield f"clients.{key} = {getattr(clients, key)}; the theorem has plain local SGD"
    if clients.augment != "none":
        yield "clients.augment; the gradients are measured without augmentation"
    if clients.sampling != "replacement":
        yield f"clients.sampling = '{clients.sampling}'; the theorem draws every minibatch independently"
    if clients.availability < 1.0:
        yield f"clients.availability = {clients.availability:g}; the theorem has cohorts of one size"
