"""How much memory a rank may take yet."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil
from mpi4py import MPI

GROUPS = Path("/sys/fs/cgroup")
"""Where Linux keeps the limits of groups of processes, such as the jobs of a cluster."""


def free_memory(comm: MPI.Intracomm) -> int:
    """Return how many bytes a rank may take yet, the same number on every rank.  Collective.

    The least that the machine, the job's control group and the limit of the process leave; the
    ranks of a machine share what is there.

    Parameters
    ----------
    comm : MPI.Intracomm
        Whose ranks take it.

    Examples
    --------
    >>> free_memory(MPI.COMM_SELF) > 2**20
    True
    """
    left = min(psutil.virtual_memory().available, left_in_group(_group()))
    if comm.size > 1:
        machine = comm.Split_type(MPI.COMM_TYPE_SHARED)
        left //= machine.size
        machine.Free()
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        left = min(left, limit - psutil.Process().memory_info().vms)
    return max(0, comm.allreduce(left, MPI.MIN) if comm.size > 1 else left)


def _group() -> Path:
    """Return the folder of the control group of this process."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return GROUPS
    # "0::/path" of version 2, "7:memory:/path" of version 1
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            return GROUPS / controllers / path.lstrip("/")
    return GROUPS


def left_in_group(group: Path) -> int:
    """Return what a control group and those around it leave; what caches of files take is free."""
    left = 2**62
    for folder in (group, *group.parents):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            try:
                most = int((folder / limit).read_text(encoding="ascii"))
                taken = int((folder / used).read_text(encoding="ascii"))
                words = (folder / "memory.stat").read_text(encoding="ascii").split()
            except (OSError, ValueError):  # not there, or "max"
                continue
            cached = dict(zip(words[::2], words[1::2], strict=False)).get("inactive_file", "0")
            left = min(left, most - taken + int(cached))
        if folder == GROUPS:
            break
    return left


__all__ = ["free_memory", "left_in_group"]
