"""What an algorithm sends and keeps, found by playing two small rounds with its parts.

`dragfl list algorithms` answers without torch, which the parts need to run. So the findings are kept in `costs.json`
beside this file, written by `python -m dragfl.cli.list_parts --costs`; a test holds them to what the parts do now.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLIENTS = 20  # enough for any rule's least cohort
FILE = Path(__file__).with_name("costs.json")


@dataclass(frozen=True)
class Cost:
    """Of one client in one round, and what is kept from round to round."""

    down: int  # vectors of the model's length sent to a client, the model included
    up: int  # vectors sent back, the update included
    client: list[str]  # what each client keeps
    server: list[str]  # what the server keeps beside the model
    streams: bool  # updates are folded as they arrive; otherwise all are held at once
    passes: int  # over the updates of the first round
    root: bool  # it wants trusted data on the server


def known() -> dict[str, Cost]:
    """Preset -> cost, as last found."""
    return {name: Cost(**fields) for name, fields in json.loads(FILE.read_text()).items()}


def found() -> dict[str, Cost]:
    """Preset -> cost, as the parts are now. Imports torch."""
    from dragfl.algorithms import PRESETS

    return {name: of(name) for name in PRESETS}


def of(name: str) -> Cost:
    """The cost of one preset, as its parts are now. Imports torch."""
    from dragfl.config.spec import load

    root = {"size": 1}  # for the rules that refuse to load without
    return probe(load({"algorithm": {"name": name}, "root": root}).algorithm)


def probe(algorithm: Any) -> Cost:
    """Two rounds of CLIENTS clients with a model of three numbers."""
    import torch

    from dragfl.types import FederationInfo, LocalResult, RoundContext, RoundInputs, Updates

    correct, rule, server = algorithm.correction, algorithm.aggregate, algorithm.server
    setting = FederationInfo(dim=3, clients=CLIENTS, per_round=CLIENTS, segments=(0, 3))
    w, delta = torch.zeros(3), torch.ones(CLIENTS, 3) + torch.eye(CLIENTS, 3)
    states = [correct.init(setting), rule.init(setting), server.init(setting)]
    shapes = {"vector": w, "scalar": torch.zeros(())}
    mine = {name: shapes[kind] for name, kind in correct.fields.items()}
    needs: set[str] = set()
    down, up, passes = 0, 0, 1
    for t in range(2):
        now = RoundContext(t, lr=0.1, seed=0)
        asked = correct.needs(states[0])
        gradient = delta[0] if asked - {"root"} else None
        sent = correct.broadcast(
            states[0], now, RoundInputs(gradient=gradient, root=delta[0] if "root" in asked else None)
        )
        done = LocalResult(delta[0], 2, 0.1, 5, lambda: delta[1])
        extra, mine = correct.client_finish(done, mine, sent, now)
        down = 1 + sum(value.shape == w.shape for value in sent.values())
        up = 1 + sum(value.shape == w.shape for value in extra.values()) + (gradient is not None)
        passes = 2 if t == 0 and "mean" in rule.needs(states[1]) else passes
        needs |= rule.needs(states[1]) | asked
        plan = rule.begin(states[1], now, RoundInputs(root=delta[0], mean=delta.mean(0)), setting)
        block = Updates(delta, torch.ones(CLIENTS).double(), torch.arange(CLIENTS))
        partial = rule.fold(plan, block)
        step, states[1], _ = rule.finish(states[1], plan, partial)
        sums = {name: CLIENTS * value.double() for name, value in extra.items()}
        sums |= {
            "delta": delta.sum(0).double(),
            "count": torch.tensor(float(CLIENTS)),
            "steps": torch.tensor(2.0 * CLIENTS),
        }
        sums |= {} if gradient is None else {"gradient": gradient}
        step, states[0] = correct.server_finish(states[0], sums, step, setting, now)
        w, states[2] = server.update(states[2], step, w, now)
    kept = [field.name for state in states for field in dataclasses.fields(state)]
    return Cost(down, up, list(correct.fields), kept, "all" not in needs, passes, "root" in needs)


def written(costs: dict[str, Cost]) -> str:
    """Costs as the text of the file."""
    lines = (f'  "{name}": {json.dumps(dataclasses.asdict(cost))}' for name, cost in costs.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
