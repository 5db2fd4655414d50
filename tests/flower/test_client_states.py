"""The client's state files: whatever happens to replies and to the server, the accepted state can be loaded."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dragfl.engine.client_store.layout import Layout
from dragfl.errors import SpecError
from dragfl.flower.client_states import check_run, delete_states, load_state, save_state, state_folder

LAYOUT = Layout({"c": (3,), "n": ()})


def state(value: float) -> dict[str, torch.Tensor]:
    return {"c": torch.tensor([value, 0.0, -value]), "n": torch.tensor(value)}


def same(a: dict[str, torch.Tensor] | None, b: dict[str, torch.Tensor]) -> bool:
    return a is not None and a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return state_folder(tmp_path, "beef", 2)


def test_a_saved_state_is_loaded_with_the_same_bits(folder: Path) -> None:
    assert folder.parts[-2:] == ("beef", "client-2")
    for round, value in ((1, 0.1), (3, float("inf"))):
        save_state(folder, round, state(value))
        assert same(load_state(folder, round, LAYOUT), state(value))
    assert sorted(path.name for path in folder.iterdir()) == ["round-1.safetensors", "round-3.safetensors"]


def test_the_state_of_round_0_is_zero_and_needs_no_file(folder: Path) -> None:
    assert same(load_state(folder, 0, LAYOUT), LAYOUT.zeros())


def test_views_of_one_tensor_are_saved_as_separate_states(folder: Path) -> None:
    both = torch.arange(6.0)
    save_state(folder, 1, {"a": both[:3], "b": both[3:]})
    assert same(load_state(folder, 1, Layout({"a": (3,), "b": (3,)})), {"a": both[:3], "b": both[3:]})


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "a bit", "no digest", "another round", "a folder"])
def test_a_damaged_file_counts_as_lost(folder: Path, damage: str) -> None:
    save_state(folder, 4, state(1.0))
    path = folder / "round-4.safetensors"
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-4])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "a bit":
        data[-2] ^= 1
        path.write_bytes(data)
    elif damage == "no digest":
        save_file({f"state.{name}": value for name, value in state(1.0).items()}, path)
    elif damage == "another round":
        save_state(folder, 5, state(1.0))
        (folder / "round-5.safetensors").rename(path)
    elif damage == "a folder":
        path.mkdir()
    assert load_state(folder, 4, LAYOUT) is None


@pytest.mark.parametrize(
    "shapes", [{"c": (4,), "n": ()}, {"c": (3,)}, {"c": (3,), "n": (), "m": ()}, {"c": (3,), "n": (1,)}]
)
def test_a_file_of_another_layout_counts_as_lost(folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    save_state(folder, 1, state(1.0))
    assert load_state(folder, 1, Layout(shapes)) is None


def test_the_digest_covers_every_tensor(folder: Path) -> None:
    save_state(folder, 1, state(1.0))
    stored = load_file(folder / "round-1.safetensors")
    save_file(stored | {"state.n": torch.tensor(2.0)}, folder / "round-1.safetensors")
    assert load_state(folder, 1, LAYOUT) is None


def test_later_rounds_and_other_files_are_not_deleted(folder: Path) -> None:
    """A message of round 3 that was delivered late does not delete what round 5 wrote."""
    for round in (1, 2, 3, 5):
        save_state(folder, round, state(round))
    (folder / "round-1.txt").write_text("not ours")
    (folder / "round-1.safetensors.tmp").write_text("the process was killed")
    delete_states(folder, {2}, before=3)
    kept = ["round-1.txt", "round-2.safetensors", "round-3.safetensors", "round-5.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == kept
    delete_states(folder / "absent", {2}, before=3)


@pytest.mark.parametrize(
    "run", ["", "abc", "..", "../../etc", "ABCD", "abcd/ef", "abcd\n", "g" * 8, "a" * 65, 17, None]
)
def test_a_run_id_that_is_not_hexadecimal_names_no_folder(tmp_path: Path, run: object) -> None:
    with pytest.raises(SpecError, match="hexadecimal"):
        check_run(run)
    with pytest.raises(SpecError, match="hexadecimal"):
        state_folder(tmp_path, run, 0)  # type: ignore[arg-type]


@dataclass
class Server:
    """What the server knows of one client: the accepted round, and its last checkpoint."""

    round: int = 0
    accepted: int = 0
    durable: int = 0
    saved: tuple[int, int] = (0, 0)  # (round, accepted) of the checkpoint
    values: dict[int, float] = field(default_factory=lambda: {0: 0.0})  # round -> the value that was accepted


EVENTS = st.sampled_from(["accepted", "refused", "lost", "not asked", "checkpoint", "resume", "late"])


@settings(max_examples=40, deadline=None)
@given(st.lists(EVENTS, max_size=30))
def test_the_client_always_finds_the_state_that_the_server_accepted(events: list[str]) -> None:
    """Each training adds a number that is used once, so that a state of another round or time line is noticed.

    `refused` and `lost` look the same to the client: it wrote a state that no later message names. `late`: the message
    of an earlier round reaches the client after those of later rounds.
    """
    with tempfile.TemporaryDirectory() as tmp:
        folder, server, late = Path(tmp) / "client-0", Server(), None
        for unique, event in enumerate(events, start=1):
            if event == "checkpoint":
                server.saved, server.durable = (server.round, server.accepted), server.accepted
            elif event == "resume":
                server.round, server.accepted = server.saved
                late = None
            elif event == "late" and late is not None:
                accepted, durable, round, value = late
                if load_state(folder, accepted, LAYOUT) is not None:
                    delete_states(folder, {accepted, durable}, before=round)
                    save_state(folder, round, state(value))
                late = None
            else:
                server.round += 1
                if event == "not asked":
                    continue
                if event == "late":
                    late = (server.accepted, server.durable, server.round, float(-unique))
                    continue
                found = load_state(folder, server.accepted, LAYOUT)
                assert same(found, state(server.values[server.accepted]))
                delete_states(folder, {server.accepted, server.durable}, before=server.round)
                save_state(folder, server.round, state(float(unique)))
                if event == "accepted":
                    server.accepted = server.round
                    server.values[server.round] = float(unique)
            assert same(load_state(folder, server.accepted, LAYOUT), state(server.values[server.accepted]))
            assert same(load_state(folder, server.durable, LAYOUT), state(server.values[server.durable]))
            files = list(folder.glob("*")) if folder.exists() else []
            assert all(path.suffix == ".safetensors" for path in files)
