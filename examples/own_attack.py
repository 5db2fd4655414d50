"""An attack of your own: inner-product manipulation, which needs to know what the honest clients send.

    python own_attack.py [ROUNDS]

Xie, Koyejo, Gupta, UAI 2019: every attacker sends -epsilon times the mean honest update. `knowledge` says what an
attack may see: "own" (each attacker its own clean update), "colluding" (all attackers' clean updates together),
"omniscient" (the honest updates of the round as well) or "white_box" (the aggregation too, as a function of the lies).
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
            return view.own, state  # nobody to imitate: send the clean updates
        lie = -self.epsilon * view.honest.delta.mean(0)
        return replace(view.own, delta=lie.expand_as(view.own.delta).clone()), state


if __name__ == "__main__":
    check_attack(InnerProduct())
    print("InnerProduct keeps the contract")
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
        print(f"{name}: accuracy {last.accuracy:.3f} after {last.round} rounds with 8 of 20 clients lying")
