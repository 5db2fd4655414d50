"""One round: sample, train, aggregate, update.

A round is a function of (federation, state). The state goes in and comes out as a value, draws are addressed by round
and client, and sums are added in block order, so neither the backend nor an interruption can change a bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dragfl.engine.adversary import Defence, craft_jointly, next_state_alone
from dragfl.engine.aggregation import BlockResult, Total, fold, mean_update
from dragfl.engine.client import ClientResults, TrainTask, concat
from dragfl.engine.kept_results import keep_results
from dragfl.engine.server_round import ServerRound
from dragfl.engine.state import Federation, FederationState
from dragfl.types import RoundRecord, State


def run_round(fed: Federation, state: FederationState) -> tuple[FederationState, RoundRecord]:
    """Run one round of the federation."""
    server = ServerRound.open(fed, state)  # sample the cohort, make the broadcast
    if not server.present:
        return server.close(state.attack)
    tasks = TrainTasks(server)
    rule = fed.algorithm.aggregate
    if keeps_results(server):  # train, then attack jointly or take the mean, then aggregate
        results, attack_state = train_and_attack(fed, server, tasks)
        mean = mean_update(fold(rule, Total(), block) for block in results) if "mean" in server.needs else None
        plan = server.begin(mean, len(results[0].updates) if results and "all" in server.needs else None)
        blocks: Iterable[BlockResult] = (fold(rule, plan, block) for block in results)
    else:  # each worker trains a block and folds it
        attack_state = attack_state_alone(server)
        blocks = fed.backend.fold(tasks, server.begin())
    for block in blocks:
        server.take(block)
    return server.close(attack_state)  # aggregate, correct, update the model


def keeps_results(server: ServerRound) -> bool:
    """Whether all updates must be held before the first is folded.

    That is so for a rule that needs everyone in one block, for attackers that see more than their own update, and for
    a rule that needs the mean first, as DRAG does in its first round: no client trains a round twice.
    """
    joint = server.fed.adversary is not None and server.fed.adversary.joint
    return joint or bool(server.needs & {"all", "mean"})


def train_and_attack(fed: Federation, server: ServerRound, tasks: TrainTasks) -> tuple[list[ClientResults], State]:
    """(the results of the whole cohort as they are sent, the attack's next state)."""
    state, adversary = server.state, fed.adversary
    results = keep_results(fed.backend.train(tasks), fed.kept_bytes, copy=fed.backend.reuses_memory)
    if adversary is None or not adversary.joint:
        attack_state = attack_state_alone(server)
    elif not results:  # no client has replied
        attack_state = state.attack
    else:
        defence = Defence(fed.algorithm.aggregate, state.aggregate, replace(server.inputs, gradient=None))
        results, attack_state = craft_jointly(
            adversary, state.attack, results, server.attackers, defence, state.w, fed.info, server.context
        )
    return [concat(results)] if results and "all" in server.needs else results, attack_state


def attack_state_alone(server: ServerRound) -> State:
    """The next state of an attack whose attackers know only themselves."""
    adversary, state = server.fed.adversary, server.state
    if adversary is None or not server.attackers:
        return state.attack
    return next_state_alone(adversary.attack, state.attack, state.w, server.fed.info, server.context)


@dataclass(frozen=True)
class TrainTasks:
    """The blocks of a round as tasks, made when they are asked for: client states are read a block at a time."""

    server: ServerRound

    def __iter__(self) -> Iterator[TrainTask]:
        server, fed, state = self.server, self.server.fed, self.server.state
        alone = fed.adversary is not None and not fed.adversary.joint
        for clients in fed.blocks(server.present):
            states = tuple(fed.store.read(m) for m in clients)
            attackers = server.attackers.intersection(clients) if alone else frozenset[int]()
            yield TrainTask(clients, state.w, server.broadcast, server.context, states, attackers, state.attack)
