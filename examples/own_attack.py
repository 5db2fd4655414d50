"""A user-defined attack: inner-product manipulation, which uses the honest updates.

    python own_attack.py [ROUNDS]

Xie, Koyejo, Gupta, UAI 2019: every attacker sends -epsilon times the mean honest update. An attack sees what its
`knowledge` grants: "own" (each attacker its own clean update), "colluding" (the clean updates of all attackers),
"omniscient" (also the honest updates) or "white_box" (also the aggregation, as a function of the malicious updates).
"""

import sys
from dataclasses import dataclass, replace

import dragfl
from dragfl.testing import check_attack
from dragfl.types import FederationInfo, Knowledge, NoState, RoundContext, State, Updates, View


@dataclass(frozen=True)
class InnerProduct:
    """b = -epsilon mean_honest(g)."""

    epsilon: float = 1.0

    @property
    def knowledge(self) -> Knowledge:
        return "omniscient"

    def init(self, info: FederationInfo) -> State:
        return NoState()

    def craft(self, state: State, view: View, context: RoundContext) -> tuple[Updates, State]:
        if view.honest is None or not len(view.honest):
            return view.own, state  # no honest client was sampled
        malicious = -self.epsilon * view.honest.delta.mean(0)
        return replace(view.own, delta=malicious.expand_as(view.own.delta).clone()), state


if __name__ == "__main__":
    check_attack(InnerProduct())
    print("InnerProduct satisfies the contract")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name in ("fedavg", "fltrust", "br_drag"):
        experiment = dragfl.load(
            {
                "rounds": rounds,
                "root": {"size": 100},
                "algorithm": {"name": name},
                "attack": {"name": InnerProduct(epsilon=2.0), "attackers": 8},
                "model": {"name": "logistic"},
            }
        )
        last = list(dragfl.simulate(experiment))[-1]
        print(f"{name}: accuracy {last.accuracy:.3f} after {last.round} rounds with 8 of 20 clients malicious")
