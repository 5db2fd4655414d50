"""The state that a client of a Flower federation keeps between rounds, as files of its node.

A client is never told whether its reply was accepted. So it writes its new state under the number of the round, and the
next message names the round that the server has `accepted`. A reply that was refused, late or lost changes nothing.

    <state-dir>/<run id>/client-<m>/round-<t>.safetensors
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dragfl import atomic
from dragfl.engine.client_store.layout import Layout
from dragfl.errors import SpecError

RUN = re.compile(r"[0-9a-f]{4,64}")
FILE = re.compile(r"round-([1-9]\d{0,9})\.safetensors(?:\.tmp)?")  # .tmp: the process was killed while it wrote
DIGEST = "digest"  # a tensor of each file; safetensors has no checksum


def check_run(run: object) -> str:
    """The id of a run: it becomes the name of a folder, so it must be hexadecimal digits."""
    if not isinstance(run, str) or not RUN.fullmatch(run):
        raise SpecError(f"run id: {str(run)[:80]!r}; expected 4 to 64 hexadecimal digits")
    return run


def state_folder(state_dir: Path, run: str, client: int) -> Path:
    """The folder with the states of one client in one run."""
    return state_dir / check_run(run) / f"client-{int(client)}"


def save_state(folder: Path, round: int, state: Mapping[str, Tensor]) -> None:
    """Write the state after a round; the file is whole and on disk when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {name: value.detach().cpu().clone().contiguous() for name, value in state.items()}
    atomic.write_tensors(
        _path(folder, round),
        {f"state.{name}": value for name, value in values.items()} | {DIGEST: _digest(values, round)},
    )


def load_state(folder: Path, round: int, layout: Layout) -> dict[str, Tensor] | None:
    """The state after a round, zeros for round 0; None where the file is missing, damaged or of another layout."""
    if round == 0:
        return layout.zeros()
    try:
        found = load_file(_path(folder, round))
        digest = found.pop(DIGEST)
        state = {name.removeprefix("state."): value.clone() for name, value in found.items()}
        layout.check(state)
        if not torch.equal(digest, _digest(state, round)):
            return None
    except (OSError, KeyError, RuntimeError, SpecError, SafetensorError):
        return None
    return {name: state[name].to(layout.device) for name in layout.shapes}


def delete_states(folder: Path, keep: set[int], before: int) -> None:
    """Delete the states of rounds below `before`, except those to keep.

    Later rounds stay: a message that was delivered late must not delete what the server has accepted since.
    """
    for path in folder.glob("round-*"):
        match = FILE.fullmatch(path.name)
        if match and int(match[1]) < before and int(match[1]) not in keep:
            path.unlink(missing_ok=True)


def _path(folder: Path, round: int) -> Path:
    return folder / f"round-{int(round)}.safetensors"


def _digest(state: Mapping[str, Tensor], round: int) -> Tensor:
    """A digest of names, shapes and values. The path has client and run; the round is digested too."""
    h = hashlib.blake2b(str(round).encode(), digest_size=20)
    for name in sorted(state):
        h.update(f"{name} {tuple(state[name].shape)} {state[name].dtype}".encode())
        h.update(state[name].reshape(-1).numpy().data)
    return torch.frombuffer(bytearray(h.digest()), dtype=torch.uint8)
