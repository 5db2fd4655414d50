"""The floor: only the matrix and convolution kernels that a round of plain SGD needs.

No autograd, no gathering of samples, no loss, no activations, no biases, no copy of the model; inputs are preloaded.
One process per core with one thread each: `python -m benchmarks.floor WORKLOAD` reads the number of clients per round.

    x W^T,  d W,  W <- W - lr d^T x        for a linear layer; the first needs no d W
    convolution, its two gradients, W <- W - lr g    for a convolution, channels last

The products of linear layers are torch's own. With `--onednn` they are those of dragfl's trainer: oneDNN's where large.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.workloads import LR, Workload

ROOT = Path(__file__).resolve().parents[1]
Kernel = Callable[[], object]


class Floor:
    """The worker processes of the floor."""

    def __init__(self, workload: Workload, processes: int, onednn: bool = False) -> None:
        self.clients = [
            workload.per_round // processes + (i < workload.per_round % processes) for i in range(processes)
        ]
        command = [sys.executable, "-m", "benchmarks.floor", json.dumps(asdict(workload)), *["--onednn"] * onednn]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            for _ in self.clients
        ]
        self._wait()

    def __enter__(self) -> Floor:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.processes:
            assert child.stdin is not None
            with suppress(OSError):
                child.stdin.close()
        for child in self.processes:
            child.wait()

    def round(self) -> None:
        """Run the kernels of one round on all cores."""
        for child, clients in zip(self.processes, self.clients, strict=True):
            assert child.stdin is not None
            child.stdin.write(f"{clients}\n")
            child.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        for child in self.processes:
            assert child.stdout is not None
            if not child.stdout.readline():
                raise RuntimeError(f"a floor process ended with exit code {child.wait()}")


def local_step(workload: Workload, onednn: bool = False) -> list[Kernel]:
    """The kernels of one SGD step, in order."""
    data = workload.data()
    module = workload.module(data).to(memory_format=torch.channels_last)
    h = torch.randn(workload.batch, *data.shape)
    h = h.contiguous(memory_format=torch.channels_last) if h.ndim == 4 else h
    forward: list[Kernel] = []
    backward: list[Kernel] = []
    for layer in module:
        after = layer(h)
        if isinstance(layer, nn.Linear | nn.Conv2d):
            products = onednn_kernels if onednn else linear_kernels
            kernels = products if isinstance(layer, nn.Linear) else convolution_kernels
            go, *back = kernels(layer.weight.data, h, 1e-3 * torch.randn_like(after), not forward)
            forward.append(go)
            backward = back + backward
        h = after
    return forward + backward


def linear_kernels(weight: Tensor, x: Tensor, d: Tensor, first: bool) -> list[Kernel]:
    out, back = torch.empty_like(d), torch.empty_like(x)
    kernels: list[Kernel] = [lambda: torch.mm(x, weight.t(), out=out)]
    if not first:
        kernels.append(lambda: torch.mm(d, weight, out=back))
    return [*kernels, lambda: weight.addmm_(d.t(), x, alpha=-LR)]


def onednn_kernels(weight: Tensor, x: Tensor, d: Tensor, first: bool) -> list[Kernel]:
    from dragfl.training.products import add_outer_products, linear

    back: list[Kernel] = [] if first else [lambda: linear(d, weight.t())]
    return [lambda: linear(x, weight), *back, lambda: add_outer_products(weight, d, x, -LR)]


def convolution_kernels(weight: Tensor, x: Tensor, d: Tensor, first: bool) -> list[Kernel]:
    backward = torch.ops.aten.convolution_backward
    wanted = [not first, True, False]

    def back() -> None:
        _, g, _ = backward(d, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted)
        weight.add_(g, alpha=-LR)

    return [lambda: torch.conv2d(x, weight), back]


def main() -> None:
    """Print "ready", then run as many clients as each line of stdin asks for."""
    workload = Workload(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    with torch.inference_mode():
        kernels = workload.steps * local_step(workload, onednn="--onednn" in sys.argv)
        print("ready", flush=True)
        for line in sys.stdin:
            for _ in range(int(line)):
                for kernel in kernels:
                    kernel()
            print("done", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
