"""Checks of the machine, with injected facts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import dragfl
from dragfl import health
from dragfl.errors import Interrupted
from dragfl.health import Check, Need
from tests.conftest import Load

GB = 10**9


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


class TestKernels:
    def test_a_process_killed_by_sigill(self) -> None:
        """The others run, with torch, and an error is exit code 1."""
        codes = ["os.kill(os.getpid(), signal.SIGILL)", "torch.ones(1)", "assert False"]
        assert health.run_kernels(codes) == [-signal.SIGILL, 0, 1]

    def test_a_kernel_that_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "CHECK_SECONDS", 1)
        assert health.run_kernels(["while True: pass"]) == [-signal.SIGALRM]

    def test_a_torch_that_cannot_be_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "RUN_KERNELS", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
        assert health.run_kernels(["pass", "pass"]) == [-signal.SIGILL] * 2

    def test_bfloat16_is_a_warning(self) -> None:
        found = by_name(
            health.check_kernels(lambda codes: [-signal.SIGILL if "autocast" in code else 0 for code in codes])
        )
        assert found["bfloat16 autocast"].status == "warning"
        assert found["bfloat16 autocast"].text.startswith("killed by SIGILL; do not use it")
        assert {check.status for name, check in found.items() if name != "bfloat16 autocast"} == {"OK"}

    def test_float32_is_a_failure(self) -> None:
        found = by_name(health.check_kernels(lambda codes: [int("Conv2d" in code) for code in codes]))
        assert found["float32 convolution"].status == "failed"
        assert "exit code 1; install a build of torch" in found["float32 convolution"].text


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestMemory:
    def test_control_group_v2_takes_the_smallest_of_the_parents(self, tmp_path: Path) -> None:
        write(tmp_path / "proc/meminfo", "MemTotal:       16000000 kB\n")
        write(tmp_path / "proc/self/cgroup", "0::/box/job\n")
        write(tmp_path / "sys/fs/cgroup/box/job/memory.max", "max\n")
        write(tmp_path / "sys/fs/cgroup/box/memory.max", "2000000000\n")
        limits = health.memory_limits(tmp_path)
        assert limits["physical memory"] == 16000000 * 1024
        assert limits["control group"] == 2 * GB

    def test_control_group_v1(self, tmp_path: Path) -> None:
        write(tmp_path / "proc/self/cgroup", "5:cpu:/job\n4:memory:/job\n")
        write(tmp_path / "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000000\n")
        write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{2**63 - 4096}\n")
        assert health.memory_limits(tmp_path)["control group"] == GB // 2

    @pytest.mark.parametrize(("need", "status"), [(1, "OK"), (3, "warning"), (5, "failed")])
    def test_against_the_smallest_limit(self, need: int, status: str) -> None:
        check = health.check_memory({"physical memory": 16 * GB, "control group": 4 * GB}, Need(need * GB, 0))
        assert check.status == status
        assert ("lower engine.workers" in check.text) == (status != "OK")

    def test_no_limit_found(self) -> None:
        assert health.check_memory({}, None).status == "warning"


class TestFolder:
    def test_a_lock_that_does_not_exclude(self, tmp_path: Path) -> None:
        check = health.check_lock(tmp_path, run=lambda code: 0)
        assert check.status == "failed" and "a second process got the same lock" in check.text

    def test_a_real_lock(self, tmp_path: Path) -> None:
        assert health.check_lock(tmp_path).status in ("OK", "warning")
        assert not list(tmp_path.iterdir())

    def test_network_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "file_system", lambda folder: "nfs4")
        check = health.check_lock(tmp_path)
        assert check.status == "warning" and "(nfs4)" in check.text

    def test_file_system_of_the_longest_mount(self, tmp_path: Path) -> None:
        mounts = f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n"
        assert health.file_system(tmp_path / "runs", mounts) == "nfs4"
        assert health.file_system(Path("/"), mounts) == "ext4"

    def test_full_disk(self, tmp_path: Path) -> None:
        def fail(path: Path, text: str) -> None:
            raise Interrupted(f"{path}: cannot be written, the disk is full")

        check = health.check_atomic_write(tmp_path, fail)
        assert check.status == "failed" and "the disk is full" in check.text
        assert not list(tmp_path.iterdir())

    def test_atomic_write(self, tmp_path: Path) -> None:
        assert health.check_atomic_write(tmp_path).status == "OK"
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("free", "need", "status"),
        [(0, 0, "failed"), (GB, 2 * GB, "failed"), (3 * GB, 2 * GB, "warning"), (GB // 2, 0, "warning"),
         (9 * GB, 2 * GB, "OK")],
    )  # fmt: skip
    def test_disk(self, free: int, need: int, status: str) -> None:
        assert health.check_disk("disk", Path("/x"), free, need).status == status

    def test_a_folder_that_does_not_exist_yet(self, tmp_path: Path) -> None:
        assert health.existing_parent(tmp_path / "a/b") == tmp_path


class TestVersions:
    def test_required_and_optional(self) -> None:
        installed = {"torch": "2.3.1+cpu", "rich": "14.1", "flwr": "2.0"}.get
        lines = ["torch>=2.4", "rich<15,>=14", 'flwr<2,>=1.41; extra == "flower"', 'ray==2.55.1; extra == "ray"']
        first, *rest = health.check_versions(lines, installed)
        assert first.status == "OK" and first.text.startswith("1 installed")
        assert [(check.name, check.status) for check in rest] == [("torch", "failed"), ("flwr", "warning")]
        assert "version 2.3.1+cpu, and dragfl needs >=2.4; run: pip install 'torch>=2.4'" in rest[0].text

    def test_a_required_package_is_missing(self) -> None:
        (_, check) = health.check_versions(["torch>=2.4"], lambda package: None)
        assert check.status == "failed" and check.text.startswith("not installed")

    def test_constraints(self, tmp_path: Path) -> None:
        file = tmp_path / "constraints.txt"
        assert health.check_constraints(file, lambda package: "1") == []
        file.write_text("# tested\ntorch==2.13.0\nrich==14.3.4\nray==1.0\n")
        (check,) = health.check_constraints(file, {"torch": "2.13.0+cpu", "rich": "14.0"}.get)
        assert check.status == "warning" and "rich 14.0 (tested 14.3.4)" in check.text
        assert "torch" not in check.text and "ray" not in check.text


class TestNeed:
    def test_data_that_are_not_here(self, experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The checks of the machine are made all the same."""
        monkeypatch.setattr(health, "check_kernels", lambda: [Check("float32 matmul", "OK", "runs")])
        missing = experiment(data={"dataset": f"npz:{tmp_path}/nowhere.npz", "partition": "iid"})
        found = by_name(health.check_machine(missing, tmp_path))
        assert found["experiment"].status == "failed" and "nowhere.npz" in found["experiment"].text
        assert "float32 matmul" in found and "disk space of runs" in found

    @pytest.mark.parametrize(("count", "text"), [(2**31, "2.1 GB"), (5 * 10**7, "50.0 MB"), (3000, "3.0 kB")])
    def test_sizes_in_words(self, count: int, text: str) -> None:
        assert text in health.check_disk("disk", Path("/x"), 9 * GB, count).text

    def test_grows_with_rounds_and_states(self, experiment: Load) -> None:
        small = health.estimate_need(experiment())
        assert health.estimate_need(experiment(rounds=1000)).disk > small.disk
        assert health.estimate_need(experiment(algorithm={"name": "scaffold"})).disk > small.disk

    def test_has_the_updates_of_a_round(self, experiment: Load) -> None:
        """DRAG keeps those of its first round, 4d bytes each, in memory up to `state.memory_mb`."""
        clients = {"total": 20, "batch_size": 5}
        few, many = (
            health.estimate_need(experiment(clients={**clients, "per_round": n}, engine={"block": 2, "workers": 1}))
            for n in (5, 15)
        )
        none = experiment(
            clients={**clients, "per_round": 15}, engine={"block": 2, "workers": 1}, state={"memory_mb": 0}
        )
        update = (many.memory - few.memory) / 10
        assert update == 4 * dragfl.simulate(none).federation.info.dim
        assert health.estimate_need(none).memory == many.memory - 15 * update

    def test_is_not_below_what_a_run_writes(self, experiment: Load, tmp_path: Path) -> None:
        made = experiment(rounds=20)
        run = dragfl.run(made, tmp_path / "run")
        logs = sum((run.path / name).stat().st_size for name in ("metrics.jsonl", "clients.jsonl", "timing.jsonl"))
        assert logs < health.estimate_need(made).disk
