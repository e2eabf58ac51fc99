"""Files: a replica's checkpoint damaged while it is dead or while it runs, and a disk that is full.

A checkpoint is damaged while its replica is down, or under its feet; in the second case the replica is killed a few
seconds later, because the damage has to be found before another action relies on that checkpoint.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psutil

from lockstep.agent.processes import kill_tree
from lockstep.chaos.actions.processes import victim
from lockstep.chaos.vocabulary import Action, Deed, Member, Need, Part, RunningJob

UNDER_ITS_FEET_SHARE = 0.4
KILLED_AFTER_S = (1.0, 5.0)
FULL_S = (2.0, 6.0)
SMALL_DISK_MB = 1024
"""What a small disk holds: a job of chaos needs about a quarter of it, and it is filled in a second."""
SMALL_DISK_BYTES_MAX = 4 * 1024**3
"""A file system that is larger than this is somebody's disk, which chaos never fills."""
_BALLAST = "chaos-ballast"
_CLONE_NEWNS = 0x00020000


def last_commit(checkpoint: Path) -> list[Path]:
    """Spark's newest entry in the log of commits, with its checksum."""
    return _newest_entry(checkpoint / "commits")


def last_offsets(checkpoint: Path) -> list[Path]:
    """Spark's newest entry in the log of offsets: without it the newest commit belongs to nothing."""
    return _newest_entry(checkpoint / "offsets")


def newest_changes(checkpoint: Path) -> list[Path]:
    """The newest file of changes of each partition of state."""
    return _newest_of_each(checkpoint, "*.changelog")


def newest_states(checkpoint: Path) -> list[Path]:
    """The newest whole state of each partition of state."""
    return _newest_of_each(checkpoint, "*.zip")


def fingerprint(checkpoint: Path) -> list[Path]:
    """Lockstep's own note of which plan wrote it."""
    return [checkpoint / "lockstep.json"]


PLACES: Mapping[str, Callable[[Path], list[Path]]] = {
    "the last commit": last_commit,
    "the last offsets": last_offsets,
    "the newest changes of state": newest_changes,
    "the newest whole state": newest_states,
    "the fingerprint": fingerprint,
}


def delete(path: Path, draw: Random) -> None:  # noqa: ARG001  (one shape for every damage)
    """Remove it."""
    path.unlink(missing_ok=True)


def empty(path: Path, draw: Random) -> None:  # noqa: ARG001  (one shape for every damage)
    """Leave its name and nothing in it, as a crash of the machine does."""
    os.truncate(path, 0)


def cut_short(path: Path, draw: Random) -> None:
    """Keep a part of it: a torn write."""
    os.truncate(path, int(path.stat().st_size * draw.uniform(0.1, 0.9)))


def garble(path: Path, draw: Random) -> None:
    """Overwrite a few bytes in the middle of it, as a bad disk does."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(draw.randrange(max(1, size - 8)))
        file.write(draw.randbytes(min(8, size)))


DAMAGES: Mapping[str, Callable[[Path, Random], None]] = {
    "deleted": delete,
    "emptied": empty,
    "cut short": cut_short,
    "garbled": garble,
}


def damage(folder: Path, place: str, how: str, draw: Random) -> list[Path]:
    """Damage one place in the checkpoint of each stage in a replica's folder; the files it was done to."""
    found = [path for checkpoint in _checkpoints(folder) for path in PLACES[place](checkpoint) if path.exists()]
    for path in found:
        DAMAGES[how](path, draw)
    return found


class _Damage(Action):
    """What both actions on checkpoints share: when it is done, and to whom."""

    requires = frozenset({Need.OTHER_REPLICA, Need.CHECKPOINT})
    takes = frozenset({Part.REPLICA})
    lasts_s_max = KILLED_AFTER_S[1]

    def missing(self, running: RunningJob) -> str | None:
        """Whoever is hurt must have a checkpoint."""
        if (reason := super().missing(running)) is not None:
            return reason
        spare = running.spare_replicas()
        return None if all(_has_commits(one) for one in spare) else "a replica has no checkpoint yet"

    def carried_out(self, running: RunningJob, draw: Random, place: str, how: str) -> Deed:
        """Damage ``place`` of a replica that is killed now, or of one that runs and is killed in a while."""
        one = victim(running, draw)
        still_there = _watched(one.pid)
        runs = draw.random() < UNDER_ITS_FEET_SHARE
        lasts_s = round(draw.uniform(*KILLED_AFTER_S), 1)
        if not runs:
            # Between this and the restart are milliseconds; its checkpoint is looked at when its JVM is up.
            kill_tree(one.pid)
        files = [str(path.relative_to(one.folder)) for path in damage(one.folder, place, how, draw)]
        data = {"pid": one.pid, "files": files, "how": how, "running": runs}
        text = f"{place} of {one.name} {how}"
        if not runs:
            return Deed(f"{text} after kill -9", replica=one.name, data=data)
        return Deed(
            f"{text} under its feet, kill -9 after {lasts_s} s",
            replica=one.name,
            data=data,
            lasts_s=lasts_s,
            # By its identity: the process id may belong to someone else by then.
            undo=lambda: kill_tree(one.pid) if still_there() else None,
        )


def _watched(pid: int) -> Callable[[], bool]:
    """Whether the process that has this id now is there, asked later: the id may be someone else's by then."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return lambda: False
    return lambda: bool(process.is_running())


class DeleteLastCommit(_Damage):
    """Spark has forgotten that it committed: the epoch is replayed, and finds itself published."""

    name = "delete-last-commit"
    title = "delete Spark's last commit entry of one replica, so that it replays an epoch that was published"

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Delete it."""
        return self.carried_out(running, draw, "the last commit", "deleted")


class DamageCheckpoint(_Damage):
    """Anything else in a checkpoint, deleted or corrupted: it has to be noticed, and seeded anew."""

    name = "damage-checkpoint"
    title = "delete, empty, cut short or garble files of one replica's checkpoint: state, offsets, commits, fingerprint"
    weight = 1.5

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Choose a place and a damage."""
        return self.carried_out(running, draw, draw.choice(sorted(PLACES)), draw.choice(sorted(DAMAGES)))


class FillDisk(Action):
    """Nothing can be written any more, by anyone, for a while."""

    name = "fill-disk"
    title = "fill the disk to the last byte for seconds, on a small file system of the job's own"
    requires = frozenset({Need.ALL_REPLICAS})
    takes = frozenset({Part.DISK})
    lasts_s_max = FULL_S[1]
    weight = 0.7

    def impossible(self) -> str | None:
        """It needs a file system of its own, which is a mounted tmpfs."""
        return small_disk_impossible()

    def missing(self, running: RunningJob) -> str | None:
        """Never somebody's real disk."""
        if (reason := super().missing(running)) is not None:
            return reason
        if is_small_disk(running.project):
            return None
        return "the copy of the project is not on a small file system of its own; TMPDIR can name one"

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Lay ballast until nothing fits."""
        lasts_s = round(draw.uniform(*FULL_S), 1)
        ballast = running.project / _BALLAST
        size = fill(ballast)
        return Deed(
            f"the disk is full ({size / 1e6:.0f} MB of ballast) for {lasts_s} s",
            data={"ballast_bytes": size},
            lasts_s=lasts_s,
            undo=lambda: ballast.unlink(missing_ok=True),
        )


def fill(ballast: Path) -> int:
    """Write ``ballast`` until the disk is full; its size. Refuses a file system that is not small."""
    assert is_small_disk(ballast.parent), "chaos never fills somebody's disk"
    with ballast.open("wb") as file:
        handle = file.fileno()
        for step in (1024 * 1024, 4096):
            block = bytes(step)
            while _fits(handle, block):
                pass
    return ballast.stat().st_size


def _fits(handle: int, block: bytes) -> bool:
    try:
        return os.write(handle, block) > 0
    except OSError:
        return False


def is_small_disk(folder: Path) -> bool:
    """Whether ``folder`` lies on a file system of its own that is small enough to be filled."""
    alone = folder.stat().st_dev != Path(folder.anchor).stat().st_dev
    return alone and shutil.disk_usage(folder).total <= SMALL_DISK_BYTES_MAX


def small_disk_impossible() -> str | None:
    """Why no small file system can be mounted here; None if it can."""
    if sys.platform != "linux":
        return "a tmpfs is Linux's"
    if os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    if shutil.which("mount") is None or shutil.which("umount") is None:
        return "mount is not installed"
    return None


@contextmanager
def small_disk(folder: Path, size_mb: int = SMALL_DISK_MB) -> Iterator[None]:
    """A small file system mounted on ``folder`` (which has to be empty) for the time of the ``with`` block.

    This thread, and whatever it starts from now on, has its own view of what is mounted where: the file system is gone
    with the last of them, also if all are killed with -9. Nobody else sees it.
    """
    _unshare_mounts()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=0700", "lockstep-chaos", str(folder)],  # noqa: S607
        check=True,
        capture_output=True,
    )
    try:
        yield
    finally:
        # Lazily: a process that is just ending may still stand in it.
        ended = subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True, text=True)  # noqa: S607
        if ended.returncode != 0:
            # Not raised: it would hide what went wrong in the block, and the file system ends with us anyway.
            print(f"{folder} could not be unmounted: {ended.stderr.strip()}", file=sys.stderr)


def _unshare_mounts() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no mount namespace of its own: {os.strerror(number)}")
    # Where mounts are shared with other namespaces, as systemd has it, they still are in a new one.
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)  # noqa: S607


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("checkpoint*") if (path / "offsets").is_dir() and "." not in path.name)


def _has_commits(one: Member) -> bool:
    return all(last_commit(checkpoint) for checkpoint in _checkpoints(one.folder)) and bool(_checkpoints(one.folder))


def _newest_entry(log: Path) -> list[Path]:
    entries = [path for path in log.glob("[0-9]*") if path.name.isdigit()]
    if not entries:
        return []
    newest = max(entries, key=lambda path: int(path.name))
    # Its checksum too: Hadoop would refuse the file, which is another fault.
    return [newest, newest.with_name(f".{newest.name}.crc")]


def _newest_of_each(checkpoint: Path, pattern: str) -> list[Path]:
    found = []
    for partition in sorted((checkpoint / "state").glob("[0-9]*/[0-9]*")):
        files = [path for path in partition.rglob(pattern) if path.stem.isdigit()]
        if files:
            found.append(max(files, key=lambda path: int(path.stem)))
    return found


ACTIONS: tuple[Action, ...] = (DeleteLastCommit(), DamageCheckpoint(), FillDisk())
