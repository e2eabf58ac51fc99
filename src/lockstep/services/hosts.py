"""Several hosts on one machine, for tests and the demo: each has a network, processes and a disk of its own.

Linux's namespaces make them. A host is held by one process: whoever kills it kills everything on that host at the same
instant, as a power cut does, and what was written to the host's folder is there when it starts again. Its cable can be
pulled. All hosts hang on a bridge in a network namespace that this process must already be in
(:func:`own_network` is the command that brings it there), so that nothing of the machine's own network is touched, and
nothing is left however this process ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lockstep.errors import EnvironmentError_
from lockstep.runtime.spark.boot import end_with_parent

_BRIDGE = "lockstep0"
_NETWORK = "10.83.0"
_NO_SERVICE = 9
"""A port on which nobody listens."""
_TIMEOUT_S = 10.0
_INSIDE = "LOCKSTEP_OWN_NETWORK"
_NEW = ("--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc")
HOSTS_MAX = 16
_FILL_TRIES = 20
"""What is on a disk grows while it is being made as small as that."""


def obstacle() -> str | None:
    """Why hosts cannot be made here, None if they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    for program in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(program) is None:
            return f"the program {program} is missing (Debian: util-linux, iproute2)"
    done = subprocess.run([*own_network(), "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"namespaces are not permitted: {done.stderr.strip() or 'no reason given'}"


def own_network() -> list[str]:
    """What stands before a command that is to run in a network of its own, where it may make hosts."""
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *as_root, *_NEW, "env", f"{_INSIDE}=1"]


def is_own_network() -> bool:
    """Whether this process runs behind :func:`own_network`."""
    return _INSIDE in os.environ


class Host:
    """One of them. Commands run on it through :meth:`command`."""

    def __init__(self, number: int, folder: Path, others: Sequence[Path], disk_bytes: int = 0) -> None:
        self.name = f"h{number}"
        self.address = f"{_NETWORK}.{number}"
        self.folder = folder
        """Its disk: what it writes there outlives it, and no other host sees it."""
        self._others = others
        self._disk_bytes = disk_bytes
        self._port = f"port{number}"
        self._hardware_address = f"02:83:00:00:00:{number:02x}"
        self._holder: subprocess.Popen[bytes] | None = None
        self._init = 0

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self._holder is not None and self._holder.poll() is None

    def start(self) -> None:
        """Switch it on; it is reachable when this returns."""
        assert not self.is_up, f"{self.name} runs"
        self.folder.mkdir(parents=True, exist_ok=True)
        holder = [_program("unshare"), *_NEW, "sleep", "infinity"]
        # Of its standard error nothing is of use: it complains about its signal mask, and works.
        self._holder = subprocess.Popen(holder, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._init = _only_child(self._holder)
        # The same hardware address at every start: the others remember it.
        card = ("name", "eth0", "address", self._hardware_address, "netns", str(self._init))
        _do("ip", "link", "add", self._port, "type", "veth", "peer", *card)
        _do("ip", "link", "set", self._port, "master", _BRIDGE, "up")
        for words in (
            ("hostname", self.name),
            ("ip", "addr", "add", f"{self.address}/24", "dev", "eth0"),
            ("ip", "link", "set", "lo", "up"),
            ("ip", "link", "set", "eth0", "up"),
            *(("mount", "-t", "tmpfs", "-o", "ro,size=4k", "none", str(other)) for other in self._others),
        ):
            _do(*self.command(words))
        _wait_reachable(self)

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs ``words`` on this host. The host's end is its end; its own parent's is not."""
        assert self.is_up, f"{self.name} is down"
        return ["nsenter", "-t", str(self._init), "--net", "--mount", "--pid", "--uts", *words]

    def pid_here(self, pid_there: int) -> int:
        """What a process of this host, which knows itself by ``pid_there``, is called outside; 0 if there is none."""
        own = Path(f"/proc/{self._init}/ns/pid").readlink()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if (path / "ns" / "pid").readlink() != own:
                    continue
                names = next(line for line in (path / "status").read_text().splitlines() if line.startswith("NSpid"))
            except (OSError, StopIteration):
                continue  # it has just ended
            if int(names.split()[-1]) == pid_there:
                return int(path.name)
        return 0

    def kill(self) -> None:
        """Cut its power: all its processes are gone when this returns."""
        held, self._holder = self._holder, None
        if held is None:
            return
        if held.poll() is None:
            os.kill(self._init, signal.SIGKILL)
        held.wait()
        # The cable ends in a network that is about to vanish; its end here may stay a moment longer.
        subprocess.run([_program("ip"), "link", "del", self._port], capture_output=True, check=False)

    def pull_cable(self) -> None:
        """Cut it off: its processes go on, and reach nobody but each other."""
        _do("ip", "link", "set", self._port, "down")

    def plug_in(self) -> None:
        """Put the cable back."""
        _do("ip", "link", "set", self._port, "up")

    def fill_disk(self) -> None:
        """Leave no room on its disk, which has a size of its own: it is made as small as what is on it."""
        assert self._disk_bytes, f"the disk of {self.name} is the machine's"
        for left in reversed(range(_FILL_TRIES)):
            try:
                self._resize_disk(max(1, shutil.disk_usage(self.folder).used))
            except EnvironmentError_:
                if not left:
                    raise
            else:
                return

    def free_disk(self) -> None:
        """Give it its room back."""
        self._resize_disk(self._disk_bytes)

    def _resize_disk(self, size_bytes: int) -> None:
        _do("mount", "-o", f"remount,size={size_bytes}", str(self.folder))


@contextmanager
def hosts(count: int, folder: Path, disk_bytes: int = 0) -> Iterator[list[Host]]:
    """So many hosts, switched on, with folders ``h1``, ``h2``, ... in ``folder``; all gone at the end.

    With ``disk_bytes`` each has a disk of that size, in memory, that can be filled; at the end its logs are kept.
    This process itself is at :data:`HERE` in the same network, and sees all their folders. LS0024 if it is not in a
    network of its own.
    """
    if not is_own_network():
        raise EnvironmentError_(
            "LS0024",
            "hosts can only be made in a network of one's own",
            why="their bridge and addresses would be the machine's.",
            hint="start the program with lockstep.services.hosts.own_network() in front.",
        )
    assert 1 <= count <= HOSTS_MAX
    # This is the first process of its namespaces: with it, everything on all hosts ends.
    end_with_parent()
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", _BRIDGE, "type", "bridge")
    _do("ip", "addr", "add", f"{HERE}/24", "dev", _BRIDGE)
    _do("ip", "link", "set", _BRIDGE, "up")
    disks = [folder.resolve() / f"h{number}" for number in range(1, count + 1)]
    for disk in disks:
        disk.mkdir(parents=True, exist_ok=True)
        if disk_bytes:
            # Here, and not on the host: so it is there after a power cut, and gone with this process.
            _do("mount", "-t", "tmpfs", "-o", f"size={disk_bytes}", "none", str(disk))
    made = [Host(n + 1, disk, [other for other in disks if other != disk], disk_bytes) for n, disk in enumerate(disks)]
    try:
        for host in made:
            host.start()
        yield made
    finally:
        for host in made:
            host.kill()
        _do("ip", "link", "del", _BRIDGE)
        for disk in disks if disk_bytes else ():
            _keep_logs(disk)


HERE = f"{_NETWORK}.254"
"""The address of whoever made the hosts."""


def _keep_logs(disk: Path) -> None:
    """Take a disk away, and leave the logs that were on it in its place."""
    with tempfile.TemporaryDirectory(prefix="lockstep-logs-") as scratch:
        for log in (*disk.rglob("*.log"), *disk.rglob("log.txt")):
            kept = Path(scratch) / log.relative_to(disk)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, kept)
        # What a process that was just killed had open is given back a moment later.
        _do("umount", "--lazy", str(disk))
        shutil.copytree(scratch, disk, dirs_exist_ok=True)


def _wait_reachable(host: Host) -> None:
    """A bridge forwards a moment after its port came up: a connection is refused then, instead of unanswered."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex((host.address, _NO_SERVICE)) in (0, errno.ECONNREFUSED):
                return
        if time.monotonic() > deadline_s:
            raise EnvironmentError_("LS0024", f"{host.name} ({host.address}) cannot be reached")


def _only_child(holder: subprocess.Popen[bytes]) -> int:
    """The first process of the namespaces that ``unshare`` made; it has no name outside but its number."""
    path = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s and holder.poll() is None:
        if found := path.read_text().split():
            pid = int(found[0])
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
                return pid
        time.sleep(0.01)
    raise EnvironmentError_("LS0024", "a host could not be made", why=f"unshare ended with {holder.poll()}.")


def _program(name: str) -> str:
    return shutil.which(name) or name


def _do(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise EnvironmentError_("LS0024", f"`{' '.join(words)}` failed", why=done.stderr.strip() or "it said nothing.")
