"""Small run directories: client updates are random, and all telemetry is computed from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import tomli_w
import torch

from dragfl import functional
from dragfl.runs.directory import Run, load_run

DIM, CLIENTS = 60, 12
MODEL_BYTES = 4 * 50_000


class MakeRun(Protocol):
    def __call__(
        self,
        folder: str,
        *,
        algorithm: str = "drag",
        seed: int = 0,
        rounds: int = 20,
        ran: int | None = None,
        every: int = 2,
        curve: Sequence[float] | None = None,
        attack: str | None = None,
        finished: bool = True,
        diverged: bool = False,
        spec: Mapping[str, Any] | None = None,
    ) -> Run: ...


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(folder: str, **options: Any) -> Run:
        return write_run(tmp_path / "runs" / folder, **options)

    return make


def write_run(
    path: Path,
    *,
    algorithm: str = "drag",
    seed: int = 0,
    rounds: int = 20,
    ran: int | None = None,
    every: int = 2,
    curve: Sequence[float] | None = None,
    attack: str | None = None,
    finished: bool = True,
    diverged: bool = False,
    spec: Mapping[str, Any] | None = None,
) -> Run:
    """Write a run directory. `curve`: accuracies of the evaluated rounds (default: from the distance to the goal)."""
    path.mkdir(parents=True)
    settings = _spec(algorithm, seed, rounds, every, attack, spec or {})
    (path / "spec.toml").write_text(tomli_w.dumps(settings))
    (path / "run.json").write_text(
        json.dumps(
            {
                "versions": {"dragfl": "0.1.0", "torch": "2.13.0"},
                "machine": {"cpu": "a <small> one"},
                "seed": seed,
                "classes": 10,
            }
        )
    )
    ran = rounds if ran is None else ran
    metrics, clients = _simulate(settings, ran, every, curve)
    _lines(path / "metrics.jsonl", metrics)
    _lines(path / "clients.jsonl", clients)
    _lines(path / "timing.jsonl", [{"round": m["round"], "seconds": 0.01} for m in metrics])
    if finished:
        end = {"stopped_by": "diverged"} if diverged else {}
        (path / "result.json").write_text(json.dumps(_result(settings, metrics) | end))
    return load_run(path)


def _spec(
    algorithm: str, seed: int, rounds: int, every: int, attack: str | None, extra: Mapping[str, Any]
) -> dict[str, Any]:
    aggregate: dict[str, Any] = {"name": {"fedavg": "mean"}.get(algorithm, algorithm)}
    if algorithm in ("drag", "br_drag"):
        aggregate["c"] = 0.25
    spec: dict[str, Any] = {
        "name": "run",
        "seed": seed,
        "rounds": rounds,
        "target_accuracy": 0.8,
        "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
        "clients": {"total": CLIENTS, "per_round": 8, "local_steps": 5, "batch_size": 20, "lr": 0.1},
        "algorithm": {
            "name": algorithm,
            "correction": {"name": "none"},
            "aggregate": aggregate,
            "server": {"name": "sgd", "lr": 1.0},
        },
        "model": {"name": "mlp"},
        "evaluation": {"every": every},
    }
    if attack:
        spec["attack"] = {"name": attack, "attackers": 3}
    for key, value in extra.items():  # dotted keys; None removes
        *parents, last = key.split(".")
        table = spec
        for parent in parents:
            table = table.setdefault(parent, {})
        table.pop(last, None) if value is None else table.update({last: value})
    return spec


def _simulate(
    spec: Mapping[str, Any], ran: int, every: int, curve: Sequence[float] | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run the rule of the spec on random updates towards a goal; accuracy is a function of the distance to it."""
    random = np.random.default_rng(spec["seed"])
    goal = random.normal(size=DIM)
    bias = random.normal(size=(CLIENTS, DIM)) * 1.2
    w, reference = np.zeros(DIM), None
    attackers = spec.get("attack", {}).get("attackers", 0)
    metrics, clients = [], []
    for t in range(1, ran + 1):
        ids = np.sort(random.choice(CLIENTS, spec["clients"]["per_round"], replace=False))
        X = 0.12 * (goal - w + bias[ids] + random.normal(size=(len(ids), DIM)))
        bad = ids < attackers
        X[bad] *= -3.0
        root = 0.12 * (goal - w + 0.3 * random.normal(size=DIM))
        step, columns, extra = _aggregate(spec, X, reference, root)
        w, reference = w + step, step
        line = {
            "round": t,
            "sampled": len(ids),
            "used": len(ids),
            "dropped_nonfinite": 0,
            "attackers": int(bad.sum()),
            "lr": 0.1,
            "train_loss": float(np.sum((goal - w) ** 2)),
            "step_norm": float(np.linalg.norm(step)),
            "mean_norm": float(np.linalg.norm(X.mean(0))),
            "step_ratio": float(np.linalg.norm(step) / np.linalg.norm(X.mean(0))),
            "bytes_down": MODEL_BYTES * len(ids),
            "bytes_up": MODEL_BYTES * len(ids),
            **extra,
        }
        if t % every == 0:
            error = float(np.sum((goal - w) ** 2) / np.sum(goal**2))
            line["accuracy"] = curve[t // every - 1] if curve else max(0.1, 0.95 - 0.85 * min(error, 1.0))
            line["loss"] = 2.3 * error
        metrics.append(line)
        shown = {"round": t, "client": ids.tolist(), "attacker": bad.tolist(), "dropped": [False] * len(ids)}
        clients.append(shown | {k: v.tolist() for k, v in columns.items()})
    return metrics, clients


def _aggregate(
    spec: Mapping[str, Any], X: np.ndarray, reference: np.ndarray | None, root: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, float]]:
    """(step, per-client columns, per-round metrics) of the rule that the spec names."""
    rule = spec["algorithm"]["aggregate"]
    norms = np.linalg.norm(X, axis=1)
    if rule["name"] == "mean":
        return functional.mean(X), {"norm": norms}, {"pairwise_cosine": _pairwise(X)}
    r = root if rule["name"] in ("br_drag", "fltrust") else (X.mean(0) if reference is None else reference)
    cosine = X @ r / (norms * np.linalg.norm(r))
    columns = {"norm": norms, "cosine": cosine, "suspicion": 1 - cosine}
    extra = {"reference_cosine": float(X.sum(0) @ r / np.linalg.norm(X.sum(0)) / np.linalg.norm(r))}
    if rule["name"] == "fltrust":
        return functional.fltrust(X, r), columns, extra | {"trust_mean": float(cosine.clip(0).mean())}
    lam = functional.divergence(X, r, rule["c"])
    step = (functional.br_drag if rule["name"] == "br_drag" else functional.drag)(X, r, rule["c"])
    extra |= {
        "divergence_mean": float(lam.mean()),
        "divergence_above_1": float((lam > 1).mean()),
        "pairwise_cosine": _pairwise(X),
    }
    return step, columns | {"divergence": lam}, extra


def _pairwise(X: np.ndarray) -> float:
    unit = torch.nn.functional.normalize(torch.from_numpy(X))
    k = len(unit)
    return float((unit.sum(0).square().sum() - k) / (k * (k - 1)))


def _result(spec: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    curve = [(m["round"], m["accuracy"]) for m in metrics if "accuracy" in m]
    target = spec.get("target_accuracy")
    return {
        "rounds": len(metrics),
        "accuracy": curve[-1][1] if curve else None,
        "best_accuracy": max((value for _, value in curve), default=None),
        "rounds_to_target": next((t for t, value in curve if target is not None and value >= target), None),
        "stopped_by": "rounds",
        "bytes_up": sum(m["bytes_up"] for m in metrics),
        "bytes_down": sum(m["bytes_down"] for m in metrics),
    }


def _lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
