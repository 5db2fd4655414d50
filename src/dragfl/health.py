"""Checks of the machine that runs experiments: torch's kernels, memory, file locks, disk space, package versions.

`check_machine` is what `dragfl doctor --deep` prints. Every check returns a `Check`; none of them prints or raises for
what it finds.

Need of a run, an estimate (d parameters, K clients of a block):

    memory = processes x (PROCESS + data + 4d (K + WORKING)) + client states and updates of a round kept in memory
    disk   = 2 x checkpoint + 4d (model) + 2 x client states in a file + rounds x (LINE + LINE_CLIENT x clients)

A checkpoint is counted as 4d STATE_VECTORS and the client states kept in memory. There are two while one replaces the
other.
"""

from __future__ import annotations

import fcntl
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from dragfl.atomic import write_text
from dragfl.config.spec import Experiment
from dragfl.errors import DragflError

Status = Literal["OK", "warning", "failed"]

PROCESS = 400 << 20  # bytes of a Python process that has imported torch
WORKING = 24  # vectors of length d: model, gradient, momentum, correction, float64 sums, and the gaps between them
STATE_VECTORS = 4  # vectors of length d in a checkpoint: model, server step, reference, iterate
LINE, LINE_CLIENT = 1000, 150  # bytes a round adds to the logs, for itself and for each sampled client
CHECK_SECONDS = 120
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p")

KERNELS = {  # name -> (code, whether dragfl uses it)
    "float32 matmul": ("a = torch.randn(64, 64); assert (a @ a).isfinite().all()", True),
    "float32 convolution": (
        "x = torch.randn(2, 3, 16, 16, requires_grad=True); c = torch.nn.Conv2d(3, 8, 3); "
        "c(x).sum().backward(); assert x.grad.isfinite().all()",
        True,
    ),
    "bfloat16 matmul": ("a = torch.randn(64, 64).bfloat16(); assert (a @ a).isfinite().all()", False),
    "bfloat16 autocast": (
        "m = torch.nn.Linear(64, 64)\nwith torch.autocast('cpu', torch.bfloat16):\n    y = m(torch.randn(64, 64))\n"
        "y.float().sum().backward()",
        False,
    ),
}


@dataclass(frozen=True)
class Check:
    """The result of one check; `text` says what was found and, unless the status is OK, what to do."""

    name: str
    status: Status
    text: str

    def __str__(self) -> str:
        return f"{self.status}: {self.name}: {self.text}"


@dataclass(frozen=True)
class Need:
    """An estimate of what a run takes, in bytes."""

    memory: int
    disk: int


def check_machine(experiment: Experiment | None = None, folder: str | Path = "runs") -> list[Check]:
    """Check this machine for an experiment whose run directory is, or is inside, `folder`.

    Parameters
    ----------
    experiment
        What `dragfl.load` returns; without it, memory and disk space are listed but not compared with a need.
    folder
        The run directory, or the folder of the runs. It need not exist: its nearest existing parent is tested.
    """
    need, unknown = None, []
    if experiment is not None:
        try:
            need = estimate_need(experiment)
        except DragflError as error:  # such as data that are not here
            unknown = [Check("experiment", "failed", str(error))]
    where = existing_parent(Path(folder))
    return [
        *unknown,
        *check_kernels(),
        check_memory(memory_limits(), need),
        check_shared_memory(),
        check_lock(where),
        check_atomic_write(where),
        check_disk("disk space of runs", where, shutil.disk_usage(where).free, need.disk if need else 0),
        check_disk("disk space of temporary files", *_temporary(), 0),
        *check_versions(requires("dragfl") or (), installed_version),
        *check_constraints(Path(__file__).parents[2] / "constraints.txt", installed_version),
    ]


def run_code(code: str) -> int:
    """The exit code of a Python process that runs `code`; the negative signal number if one killed it."""
    command, quiet = [sys.executable, "-P", "-c", code], subprocess.DEVNULL
    try:
        return subprocess.run(command, stdout=quiet, stderr=quiet, timeout=CHECK_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return -signal.SIGALRM


RUN_KERNELS = """
import json, os, signal, sys, torch
for code in json.loads(sys.argv[1]):
    process = os.fork()
    if not process:
        signal.alarm(int(sys.argv[2]))
        exec(code)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def run_kernels(codes: Sequence[str]) -> list[int]:
    """Run each code after `import torch`: the exit codes, or the negative numbers of the signals that ended them.

    A process imports torch and forks one for each code. Without a result of its own a code has that of the import.
    """
    command = [sys.executable, "-P", "-c", RUN_KERNELS, json.dumps(codes), str(CHECK_SECONDS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    results = [int(line) for line in done.stdout.split()]
    return results + [done.returncode] * (len(codes) - len(results))


def check_kernels(run: Callable[[Sequence[str]], list[int]] = run_kernels) -> list[Check]:
    """Run small kernels of torch, each in a process of its own: an unsupported instruction kills the process."""
    found = []
    results = run([code for code, _ in KERNELS.values()])
    for (name, (_, used)), result in zip(KERNELS.items(), results, strict=True):
        if result == 0:
            found.append(Check(name, "OK", "runs"))
            continue
        end = f"killed by {signal.Signals(-result).name}" if result < 0 else f"ended with exit code {result}"
        if used:
            found.append(Check(name, "failed", f"{end}; install a build of torch for this processor"))
        else:
            advice = "do not use it in models and functions of your own; dragfl itself does not use it"
            found.append(Check(name, "warning", f"{end}; {advice}"))
    return found


def memory_limits(root: Path = Path("/")) -> dict[str, int]:
    """Name -> bytes of each limit on memory: physical, of the control group (v1 or v2), of the address space.

    `root` is the folder of proc/ and sys/.
    """
    limits: dict[str, int] = {}
    physical = re.search(r"MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"))
    if physical:
        limits["physical memory"] = int(physical[1]) << 10
    groups = [line.split(":", 2) for line in _read(root / "proc/self/cgroup").splitlines() if line.count(":") >= 2]
    found = []
    for _, controllers, path in groups:
        v1 = "memory" in controllers.split(",")
        if not v1 and controllers:
            continue
        base, file = ("sys/fs/cgroup/memory", "memory.limit_in_bytes") if v1 else ("sys/fs/cgroup", "memory.max")
        own = Path(path.lstrip("/"))
        found += [_read(root / base / folder / file).strip() for folder in (own, *own.parents)]
    sizes = [int(text) for text in found if text.isdigit() and int(text) < 1 << 60]  # v1 writes 2^63 for no limit
    if sizes:
        limits["control group"] = min(sizes)
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        limits["RLIMIT_AS"] = address_space
    return limits


def check_memory(limits: Mapping[str, int], need: Need | None) -> Check:
    """Compare the smallest limit on memory with the estimated need; more than half of it is a warning."""
    if not limits:
        return Check("memory", "warning", "no limit could be read; check that the machine has enough")
    text = ", ".join(f"{name} {_size(limit)}" for name, limit in limits.items())
    if need is None:
        return Check("memory", "OK", text)
    text, least = f"{text}; the run needs about {_size(need.memory)}", min(limits.values())
    advice = "lower engine.workers, engine.block or state.memory_mb, or use a machine with more memory"
    if need.memory > least:
        return Check("memory", "failed", f"{text}; {advice}")
    return Check("memory", "warning", f"{text}; {advice}") if need.memory > least // 2 else Check("memory", "OK", text)


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Check:
    """The size of /dev/shm. dragfl's own worker processes do not use it."""
    if not folder.is_dir():
        return Check(str(folder), "OK", "missing; the worker processes of dragfl do not need it")
    size = shutil.disk_usage(folder).total
    if size < 1 << 30:
        advice = (
            "enough for dragfl's worker processes, which do not use it; for Ray raise it (docker run --shm-size=4g)"
        )
        return Check(str(folder), "warning", f"{_size(size)}; {advice}")
    return Check(str(folder), "OK", _size(size))


def check_lock(folder: Path, run: Callable[[str], int] = run_code) -> Check:
    """Whether a lock held by this process excludes another process, as the lock of a run directory must."""
    kind = file_system(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dragfl-lock-") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            code = f"import fcntl, sys\nfile = open({file.name!r}, 'a')\n"
            code += (
                "try:\n    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept BlockingIOError:\n    sys.exit(3)\n"
            )
            excluded = run(code) == 3
    except OSError as error:
        return Check("file lock", "failed", f"{folder} ({kind}): {error.strerror}; choose another folder with --out")
    if not excluded:
        advice = "two processes could write one run directory; choose a local folder with --out"
        return Check("file lock", "failed", f"{folder} ({kind}): a second process got the same lock; {advice}")
    if kind in NETWORK_FILE_SYSTEMS:
        advice = "locks of other machines were not tested; do not start the same run on two machines"
        return Check(
            "file lock", "warning", f"{folder} ({kind}): a second process of this machine is excluded; {advice}"
        )
    return Check("file lock", "OK", f"{folder} ({kind}): a second process is excluded")


def check_atomic_write(folder: Path, write: Callable[[Path, str], None] = write_text) -> Check:
    """Write a file, fsync it, rename it over another and fsync the folder, as a checkpoint does."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".dragfl-write-") as inside:
            file = Path(inside) / "file"
            for text in ("first", "second"):
                write(file, text)
            left = sorted(path.name for path in Path(inside).iterdir())
            if left == ["file"] and file.read_text() == "second":
                return Check("atomic write", "OK", f"{folder}: write, fsync and rename work")
            return Check(
                "atomic write", "failed", f"{folder}: a renamed file is not the new one; choose another folder"
            )
    except Exception as error:  # an OSError, or what dragfl makes of a full disk
        return Check("atomic write", "failed", f"{folder}: {error}; choose another folder with --out")


def check_disk(name: str, folder: Path, free: int, need: int) -> Check:
    """Compare free space with the need; less than twice the need, or than 1 GB, is a warning."""
    text = f"{folder}: {_size(free)} free" + (f"; the run writes about {_size(need)}" if need else "")
    if need > free or free == 0:
        return Check(name, "failed", f"{text}; free some space or choose another folder")
    if free < max(2 * need, 10**9):
        return Check(name, "warning", f"{text}; free some space")
    return Check(name, "OK", text)


def check_versions(requirements: Iterable[str], installed: Callable[[str], str | None]) -> list[Check]:
    """Compare installed packages with the ranges of dragfl's metadata; a package of an extra may be missing."""
    found, good = [], 0
    for line in requirements:
        match = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*\(?([^;)]*)", line)
        if match is None or match[1] == "dragfl":
            continue
        package, allowed, optional = match[1], match[2].strip(), "extra ==" in line
        number = installed(package)
        if number is None and optional:
            continue
        if number is not None and allows(allowed, number):
            good += 1
            continue
        have = "not installed" if number is None else f"version {number}, and dragfl needs {allowed}"
        status: Status = "warning" if optional else "failed"
        found.append(Check(package, status, f"{have}; run: pip install '{package}{allowed}'"))
    return [Check("versions", "OK", f"{good} installed packages are in the ranges of dragfl's metadata"), *found]


def check_constraints(file: Path, installed: Callable[[str], str | None]) -> list[Check]:
    """Compare installed packages with the tested versions in constraints.txt; none in an installed wheel."""
    if not file.is_file():
        return []
    pins = dict(line.split("==", 1) for line in file.read_text().splitlines() if re.match(r"[\w.-]+==", line))
    others = [
        f"{package} {number} (tested {pin.strip()})"
        for package, pin in pins.items()
        if (number := installed(package)) is not None and number.partition("+")[0] != pin.strip()
    ]
    if not others:
        return [Check(file.name, "OK", "all installed packages have the tested versions")]
    advice = f"results may differ in the last digits; pip install -c {file.name} restores them"
    return [Check(file.name, "warning", f"{', '.join(others)}; {advice}")]


def allows(allowed: str, number: str) -> bool:
    """Whether a version is in a range such as `>=1.41,<2`, by its numbers; suffixes such as `+cpu` do not count.

    >>> allows(">=1.41,<2", "1.41.0"), allows(">=14,<15", "15.0"), allows("==2.55.1", "2.55.1+cpu"), allows("", "1")
    (True, False, True, True)
    """
    for operator, bound in re.findall(r"(>=|<=|==|!=|<|>)\s*([\w.]+)", allowed):
        have, want = _release(number), _release(bound)
        size = max(len(have), len(want))
        have, want = have + (0,) * (size - len(have)), want + (0,) * (size - len(want))
        holds = {
            ">=": have >= want, "<=": have <= want, "==": have == want,
            "!=": have != want, "<": have < want, ">": have > want,
        }  # fmt: skip
        if not holds[operator]:
            return False
    return True


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def estimate_need(experiment: Experiment) -> Need:
    """The estimate at the head of this module. Loads the data and builds the model."""
    from dragfl.build import build_worker, select_backend
    from dragfl.engine.backends.pool import PoolBackend
    from dragfl.engine.client_store import Layout
    from dragfl.engine.threads import available_cores

    resolved, worker = build_worker(experiment)
    data, info, d = worker.dataset, worker.info, worker.info.dim
    data_bytes = sum(t.numel() * t.element_size() for t in (data.x, data.y, data.test_x, data.test_y))
    requested = resolved.engine.workers
    workers = min(available_cores() if requested == "auto" else requested, info.per_round)
    pool = isinstance(select_backend(resolved, worker), PoolBackend)
    states = info.clients * Layout.of(resolved.algorithm.correction.fields, d, "cpu").nbytes
    limit = resolved.state.memory_mb << 20
    in_memory = states <= limit
    kept = min(4 * d * info.per_round, limit) + (states if in_memory else 0)
    per_process = PROCESS + data_bytes + 4 * d * ((resolved.engine.block or 1) + WORKING)
    checkpoint = 4 * d * STATE_VECTORS + (states if in_memory else 0)
    logs = resolved.rounds * (LINE + LINE_CLIENT * info.per_round)
    return Need(
        memory=(1 + workers if pool else 1) * per_process + kept,
        disk=2 * checkpoint + 4 * d + (0 if in_memory else 2 * states) + logs,
    )


def file_system(folder: Path, mounts: str | None = None) -> str:
    """The type of the file system of a folder, from the lines of /proc/mounts."""
    best, kind = -1, "unknown file system"
    for line in (_read(Path("/proc/mounts")) if mounts is None else mounts).splitlines():
        _, point, name, *_ = [*line.split(), "", "", ""]
        point = point.replace("\\040", " ")
        if point and folder.resolve().is_relative_to(point) and len(point) >= best:
            best, kind = len(point), name
    return kind


def existing_parent(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _temporary() -> tuple[Path, int]:
    folder = Path(tempfile.gettempdir())
    return folder, shutil.disk_usage(folder).free


def _release(number: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", number)
    return tuple(map(int, match[0].split("."))) if match else (0,)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _size(count: int) -> str:
    unit, name = next(((10**n, name) for n, name in ((9, "GB"), (6, "MB")) if count >= 10 ** (n - 1)), (1000, "kB"))
    return f"{count / unit:.1f} {name}"
