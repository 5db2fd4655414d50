"""Run every algorithm on a GPU and on the CPU: `python examples/gpu_smoke.py [ROUNDS] [--device cuda]`.

dragfl has not been tested on a GPU. If you have one, send us what this prints: whether each algorithm runs, how far its
model is from that of the CPU as a fraction of the distance moved, and the time of a round. The data are part of dragfl.
Exit codes: 0 all equal, 1 not, 2 no such device.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from typing import Any

import torch

import dragfl
from dragfl.algorithms import PRESETS

TOLERANCE = 1e-3  # of the distance that the model has moved; other orders of sums change the last bits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument("--device", default="cuda", help="a torch device (default: cuda); cpu tries the script itself")
    args = parser.parse_args()
    if problem := missing(args.device):
        print(f"no device '{args.device}' here: {problem}; `--device cpu` tries the script itself", file=sys.stderr)
        return 2
    gpu = torch.cuda.get_device_name(args.device) if args.device.startswith("cuda") else args.device
    print(
        f"dragfl {dragfl.__version__}, torch {torch.__version__}, {platform.platform()}, {gpu}, {args.rounds} rounds\n"
    )
    print(f"{'algorithm':18} {'difference':>10} {'cpu ms':>8} {'device ms':>9}")
    failed = [name for name in PRESETS if not compare(name, args.device, args.rounds)]
    print(f"\n{len(PRESETS) - len(failed)} of {len(PRESETS)} equal the CPU within {TOLERANCE:g} of the distance moved")
    if failed:
        print(f"not equal: {', '.join(failed)}")
    return 1 if failed else 0


def missing(device: str) -> str:
    """Why the device cannot be used, or ""."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:
        return str(error).splitlines()[0]
    return ""


def compare(name: str, device: str, rounds: int) -> bool:
    """Train on both devices and print a line; whether the models agree."""
    try:
        (start, w, cpu_s), (_, v, device_s) = (train(name, place, rounds) for place in ("cpu", device))
    except Exception as error:
        print(f"{name:18} {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
        return False
    difference = float((v - w).norm() / (w - start).norm())
    print(f"{name:18} {difference:10.1e} {1000 * cpu_s:8.1f} {1000 * device_s:9.1f}", flush=True)
    return difference <= TOLERANCE


def train(name: str, device: str, rounds: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """(the flat model before, and after the rounds; seconds a round after the first)."""
    tables: dict[str, Any] = {
        "rounds": rounds + 1,
        "data": {"dataset": "digits", "partition": {"kind": "dirichlet_class", "a": 0.5}},
        "clients": {"total": 20, "per_round": 10, "local_steps": 5, "batch_size": 10, "lr": 0.05},
        "model": {"name": "mlp", "hidden": 32},
        "algorithm": {"name": name},
        "evaluation": {"every": rounds + 1},
        "engine": {"device": device, "workers": 1},
        "root": {"size": 100},
    }
    with dragfl.simulate(tables) as simulation:
        start = flat(simulation.model())
        simulation.step()
        begun = time.perf_counter()
        for _ in range(rounds):
            simulation.step()
        model_now = flat(simulation.model())  # waits for the device
        return start, model_now, (time.perf_counter() - begun) / rounds


def flat(model: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.reshape(-1).float().cpu() for value in model.values()])


if __name__ == "__main__":
    sys.exit(main())
