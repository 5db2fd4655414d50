"""The floor: nothing but the matrix and convolution kernels that a round of plain SGD cannot do without.

No autograd, no gathering of samples, no loss, no activations, no biases, no copy of the model; inputs lie ready. One
process a core with one thread each: `python -m benchmarks.floor WORK`, started once and told how many clients to do.

    x W^T,  d W,  W <- W - lr d^T x        for a linear layer; the first needs no d W
    convolution, its two gradients, W <- W - lr g    for a convolution, channels last
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

from benchmarks.works import LR, Work

ROOT = Path(__file__).resolve().parents[1]
Kernel = Callable[[], object]


class Floor:
    """The processes, as their parent sees them."""

    def __init__(self, work: Work, processes: int) -> None:
        self._shares = [work.per_round // processes + (i < work.per_round % processes) for i in range(processes)]
        command = [sys.executable, "-m", "benchmarks.floor", json.dumps(asdict(work))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        self._children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            for _ in self._shares
        ]
        self._hear()

    def __enter__(self) -> Floor:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            assert child.stdin is not None
            with suppress(OSError):
                child.stdin.close()
        for child in self._children:
            child.wait()

    def round(self) -> None:
        """The clients' work of a round, on all cores."""
        for child, clients in zip(self._children, self._shares, strict=True):
            assert child.stdin is not None
            child.stdin.write(f"{clients}\n")
            child.stdin.flush()
        self._hear()

    def _hear(self) -> None:
        for child in self._children:
            assert child.stdout is not None
            if not child.stdout.readline():
                raise RuntimeError(f"a process of the floor ended with code {child.wait()}")


def local_step(work: Work) -> list[Kernel]:
    """The kernels of one SGD step, in order."""
    data = work.data()
    module = work.module(data).to(memory_format=torch.channels_last)
    h = torch.randn(work.batch, *data.shape)
    h = h.contiguous(memory_format=torch.channels_last) if h.ndim == 4 else h
    forward: list[Kernel] = []
    backward: list[Kernel] = []
    for layer in module:
        after = layer(h)
        if isinstance(layer, nn.Linear | nn.Conv2d):
            kernels = _linear if isinstance(layer, nn.Linear) else _convolution
            go, *back = kernels(layer.weight.data, h, 1e-3 * torch.randn_like(after), not forward)
            forward.append(go)
            backward = back + backward
        h = after
    return forward + backward


def _linear(weight: Tensor, x: Tensor, d: Tensor, first: bool) -> list[Kernel]:
    out, back = torch.empty_like(d), torch.empty_like(x)
    kernels: list[Kernel] = [lambda: torch.mm(x, weight.t(), out=out)]
    if not first:
        kernels.append(lambda: torch.mm(d, weight, out=back))
    return [*kernels, lambda: weight.addmm_(d.t(), x, alpha=-LR)]


def _convolution(weight: Tensor, x: Tensor, d: Tensor, first: bool) -> list[Kernel]:
    backward = torch.ops.aten.convolution_backward
    wanted = [not first, True, False]

    def back() -> None:
        _, g, _ = backward(d, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted)
        weight.add_(g, alpha=-LR)

    return [lambda: torch.conv2d(x, weight), back]


def main() -> None:
    """A process: say when ready, then do as many clients as each line says."""
    work = Work(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    with torch.inference_mode():
        kernels = work.steps * local_step(work)
        print("ready", flush=True)
        for line in sys.stdin:
            for _ in range(int(line)):
                for kernel in kernels:
                    kernel()
            print("done", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
