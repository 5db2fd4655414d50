"""`check("mymod:Part")`: find out what kind of part it is, and which properties hold for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from dragfl.algorithms import PARTS, PRESETS
from dragfl.attacks import ATTACKS
from dragfl.config.build_parts import build_attack, make_algorithm, make_model, make_part
from dragfl.config.registry import build
from dragfl.data.dataset import Dataset
from dragfl.data.partitions import PARTITIONS
from dragfl.errors import SpecError
from dragfl.models import MODELS
from dragfl.models.call import MODEL_INPUTS
from dragfl.own_code import import_object, is_function, name_of, named_errors, parameters_of
from dragfl.testing.data_parts import SHAPES, dataset_findings, model_findings, partition_findings
from dragfl.testing.findings import Finding, aggregate_findings, contract_findings, server_step_findings
from dragfl.types import Algorithm

KINDS = ("aggregate", "correction", "server step", "attack", "algorithm", "model", "partition", "dataset")
METHODS = {"fold": "aggregate", "client_finish": "correction", "update": "server step", "craft": "attack"}
BUILT_IN: dict[str, Mapping[str, Any]] = {
    "aggregate": PARTS["aggregate"],
    "correction": PARTS["correction"],
    "server step": PARTS["server"],
    "attack": ATTACKS,
    "algorithm": PRESETS,
    "model": MODELS,
    "partition": PARTITIONS,
}
FIRST = {"updates": "aggregate", "labels": "partition", "own": "attack"}  # first parameter of a function


def check(
    part: Any, kind: str | None = None, *, shape: tuple[int, ...] | None = None, **settings: Any
) -> list[Finding]:
    """Which properties hold for a part. A `Finding` that is required and does not hold is a broken contract.

    Parameters
    ----------
    part
        A name (`mymod:Part`, `nnm+mymod:rule`), a class, a function or an object.
    kind
        The kind of part, such as "aggregate"; default: by its methods.
    shape
        The input shape for a model.
    **settings
        The settings of a class or function.

    Examples
    --------
    >>> from dragfl.aggregates import Drag
    >>> all(finding.holds for finding in check(Drag(c=0.25)) if finding.required)
    True
    """
    return findings(part, kind or kind_of(part), settings, shape)


def kind_of(given: Any) -> str:
    """The kind of a part, from its methods or the names of its parameters."""
    if isinstance(given, str) and "+" in given:
        return "aggregate"
    if isinstance(given, str) and (kinds := [kind for kind, names in BUILT_IN.items() if given in names]):
        return kinds[0]
    found = import_object("check", given) if isinstance(given, str) else given
    if isinstance(found, Algorithm | Dataset):
        return "algorithm" if isinstance(found, Algorithm) else "dataset"
    if isinstance(found, nn.Module) or (isinstance(found, type) and issubclass(found, nn.Module)):
        return "model"
    for method, kind in METHODS.items():
        if hasattr(found, method) and hasattr(found, "init"):
            return kind
    if not is_function(found):
        if callable(found) and "labels" in parameters_of("check", found.__call__):
            return "partition"
        raise SpecError(f"check: {name_of(found)} is no part; it has none of {', '.join(METHODS)}; see dragfl.types")
    parameters = parameters_of("check", found)
    first = next(iter(parameters), "")
    if first in FIRST:
        return FIRST[first]
    if parameters.keys() & MODEL_INPUTS.keys():
        return "model"
    if all(p.default is not p.empty for p in parameters.values()):  # it makes something
        with named_errors(name_of(found)):
            made = found()
        if isinstance(made, Algorithm | Dataset | nn.Module):
            return kind_of(made)
    unclear = f"check: the parameters of {name_of(found)} do not show what it is"
    raise SpecError(f"{unclear}; give its kind (--as): {', '.join(KINDS)}")


def findings(part: Any, kind: str, settings: dict[str, Any], shape: tuple[int, ...] | None) -> list[Finding]:
    """The findings about a part of this kind."""
    if kind not in KINDS:
        raise SpecError(f"check: unknown kind '{kind}'; give one of {', '.join(KINDS)}")
    table = {"name": part, **settings} if isinstance(part, str) or callable(part) else part
    if not isinstance(table, dict) and settings:
        raise SpecError(f"check: {name_of(part)} is an object, so it takes no settings; got {settings!r}")
    if kind == "aggregate":
        return list(aggregate_findings(make_part("aggregate", table, where="check")))
    if kind == "correction":
        return list(contract_findings(make_part("correction", table, where="check"), kind))
    if kind == "server step":
        return list(server_step_findings(make_part("server", table, where="check")))
    if kind == "attack":
        return list(contract_findings(build_attack(table), kind))
    if kind == "algorithm":
        algorithm = part if isinstance(part, Algorithm) else make_algorithm({"algorithm": table})
        parts: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "correction": (algorithm.correction, lambda part: contract_findings(part, "correction")),
            "aggregate": (algorithm.aggregate, aggregate_findings),
            "server step": (algorithm.server, server_step_findings),
        }
        return [
            replace(finding, name=f"{name}: {finding.name}")
            for name, (own, find) in parts.items()
            for finding in find(own)
        ]
    if kind == "model":
        model = make_model(table if isinstance(table, dict) else {"name": part})
        return list(model_findings(model.make, model.settings, (shape,) if shape else SHAPES))
    if kind == "partition":
        named = {"kind": part, **settings} if isinstance(table, dict) and not is_function(part) else part
        return list(partition_findings(build("check", named, PARTITIONS, ("__call__",), key="kind")))
    found = import_object("check", part) if isinstance(part, str) else part
    return list(dataset_findings(found))
