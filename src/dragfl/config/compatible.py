"""Options of `[clients]` that do not go together with an algorithm or another table."""

from __future__ import annotations

from dragfl.aggregates.robust import Chain
from dragfl.algorithms import PARTS
from dragfl.config.build_parts import describe_part
from dragfl.config.tables import Clients, Root
from dragfl.errors import SpecError
from dragfl.types import Algorithm, RefusesOptions

OPTIONS = ("momentum", "weight_decay", "clip_norm", "augment", "availability")
PLAIN = Clients()


def options_in_use(clients: Clients) -> dict[str, object]:
    """The options of local training that differ from their default."""
    return {name: getattr(clients, name) for name in OPTIONS if getattr(clients, name) != getattr(PLAIN, name)}


def check_options(clients: Clients, algorithm: Algorithm, root: Root | None) -> None:
    """Refuse an option with which the formulas of a part do not hold, with the part's own reason."""
    used = options_in_use(clients)
    for kind in ("correction", "aggregate"):
        part = getattr(algorithm, kind)
        for link in part.chain if isinstance(part, Chain) else (part,):
            refused = link.refuses if isinstance(link, RefusesOptions) else {}
            for name in used.keys() & refused.keys():
                where = f"algorithm.{kind} = '{describe_part(link, PARTS[kind])['name']}'"
                raise SpecError(
                    f"clients.{name}: {used[name]} cannot be used with {where}: {refused[name]}; "
                    f"remove clients.{name} or choose another {kind}"
                )
    if root is not None and root.accumulate:
        for name in used.keys() & {"momentum", "weight_decay", "clip_norm"}:
            raise SpecError(
                f"clients.{name}: {used[name]} cannot be used with root.accumulate = true, which reproduces the "
                "authors' root training with plain SGD; remove one of the two"
            )
