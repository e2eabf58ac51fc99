"""Starting services, waiting until they answer, and ending them with everything that they started."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lockstep.credentials import write_private
from lockstep.errors import EnvironmentError_
from lockstep.services import guard
from lockstep.services.descriptions import (
    HOST,
    PASSWORD_FILE,
    Kind,
    Launch,
    User,
    Wish,
    address,
    launches,
    password_files,
    ports_needed,
    wish,
)
from lockstep.services.finding import Available, Missing, available
from lockstep.services.hosts import Host
from lockstep.services.installing import fetch_service
from lockstep.services.readiness import zookeeper_mode

READY_TIMEOUT_S = 120.0
"""For a machine that is busy with other things: alone, three brokers take 11 s."""
PREPARE_TIMEOUT_S = 120.0
STOP_GRACE_S = 10.0
_POLL_S = 0.05
_ATTEMPTS = 3
"""A port that was free may be taken by the time that its server starts."""
_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections: none of them takes one in between."""
_LOG = "log.txt"
_LOG_TAIL_CHARACTERS = 1500

Say = Callable[[str], None]


class Node:
    """One server process of a service; it can be hurt and started again, at the same address with the same data."""

    def __init__(self, launch: Launch, host: Host | None = None) -> None:
        self.name = launch.name
        self.port = launch.port
        self.address = f"{launch.host}:{launch.port}"
        self._launch = launch
        self.host = host
        self._guard: subprocess.Popen[str] | None = None
        self.pid = 0

    @property
    def log(self) -> Path:
        """What it wrote."""
        return self._launch.folder / _LOG

    def start(self) -> None:
        """Start it; it is not ready yet."""
        launch = self._launch
        user = launch.user or User(-1, -1)
        settings = (str(int(launch.stop_signal)), str(STOP_GRACE_S), str(user.uid), str(user.gid))
        with self.log.open("a", encoding="utf-8") as log:
            words = [sys.executable, "-I", guard.__file__, *settings, *launch.command]
            self._guard = subprocess.Popen(
                words if self.host is None else self.host.command(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=launch.folder,
                env={**os.environ, **launch.environment},
            )
        assert self._guard.stdout is not None
        pid = int(self._guard.stdout.readline() or 0)
        self.pid = pid if self.host is None or not pid else self.host.pid_here(pid)

    def check_alive(self) -> None:
        """LS0023 if it has ended."""
        if self._guard is None or self._guard.poll() is not None:
            raise self._broken("ended by itself")

    def is_ready(self) -> bool:
        """Whether it answers; LS0023 if it has ended."""
        self.check_alive()
        return self._launch.is_ready(self._launch.host, self.port)

    def wait(self, timeout_s: float = READY_TIMEOUT_S, *, given_up: threading.Event | None = None) -> None:
        """Until it answers; LS0023 if it ends or takes too long, or if the starter has given up."""
        deadline_s = time.monotonic() + timeout_s
        while not self.is_ready():
            if time.monotonic() > deadline_s or (given_up is not None and given_up.is_set()):
                raise self._broken(f"did not answer within {timeout_s:g} s")
            time.sleep(_POLL_S)

    def zookeeper_mode(self) -> str:
        """Which part it has in an ensemble: leader, follower, standalone; empty if it does not answer."""
        return zookeeper_mode(self._launch.host, self.port)

    def kill(self) -> None:
        """End it as a crash would (-9), and wait until it is gone."""
        if self.pid and self._guard is not None and self._guard.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and its guard not yet
                os.kill(self.pid, signal.SIGKILL)
        self._gone()

    def pause(self) -> None:
        """Let it stand still; it keeps its connections."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Ask it to end; :meth:`stop` waits for that."""
        with suppress(OSError, ValueError):
            if self._guard is not None and self._guard.stdin is not None:
                self._guard.stdin.write("stop\n")
                self._guard.stdin.flush()

    def stop(self) -> None:
        """End it in its own way, and with -9 where it does not."""
        self.ask_to_stop()
        self._gone()

    def _gone(self) -> None:
        """Wait for the guard: when it has ended, nothing of the server is left."""
        held, self._guard = self._guard, None
        if held is None:
            return
        try:
            held.wait(STOP_GRACE_S + 5)
        except subprocess.TimeoutExpired:
            os.killpg(held.pid, signal.SIGKILL)
            held.wait()
        for pipe in (held.stdin, held.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _broken(self, how: str) -> EnvironmentError_:
        said = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return EnvironmentError_(
            "LS0023",
            f"{self.name} {how}",
            why=f"the end of its log: {said[-_LOG_TAIL_CHARACTERS:].strip() or '(empty)'}",
            hint=f"its log and settings are in {self._launch.folder}.",
        )


class Service:
    """A service that runs: its address for clients, and its nodes."""

    def __init__(self, kind: Kind, address: str, nodes: list[Node]) -> None:
        self.kind = kind
        self.address = address
        self.nodes = nodes


@contextmanager
def running(
    *wanted: str, folder: Path | str | None = None, say: Say | None = None, on: Sequence[Host] = ()
) -> Iterator[dict[Kind, Service]]:
    """Start services, wait until each answers, and end them all; by name, ``there["kafka"].address``.

    ``wanted`` names them, ``"zookeeper=3"`` with a number of nodes. ``folder`` holds their data and logs, and a second
    start there goes on with them; without one they are thrown away. ``on`` are the hosts that the nodes of each are
    spread over (``hosts.py``); without, they are here on the loopback. LS0022 if one cannot be had on this machine
    (:func:`lockstep.services.missing` asks before), LS0023 if one does not start. However this process ends, they end.
    """
    wishes = {one.kind: one for one in map(wish, wanted)}
    tools = {kind: _found(kind) for kind in wishes}
    with ExitStack() as stack:
        home = Path(folder if folder is not None else stack.enter_context(_own_folder())).resolve()
        start = Start(say or (lambda _line: None), on)
        stack.callback(start.end_all)
        with ThreadPoolExecutor(max(1, len(wishes))) as threads:
            started = {
                kind: threads.submit(start.service, one, tools[kind], home / kind) for kind, one in wishes.items()
            }
            try:
                there = {kind: future.result() for kind, future in started.items()}
            except BaseException:
                start.give_up()
                raise
        yield there


class Start:
    """What is being started; several services at once, each in a thread of its own."""

    def __init__(self, say: Say, on: Sequence[Host] = ()) -> None:
        self._say = say
        self._on = on
        self._given_up = threading.Event()
        self._nodes: list[Node] = []
        self._folders: list[Path] = []

    def service(self, wanted: Wish, found: Available, folder: Path) -> Service:
        """Start one and wait until all its nodes answer; on other ports if somebody was quicker to take one."""
        if found.fetch:
            fetch_service(wanted.kind, self._say)
        self._say(f"{wanted.kind}: starting {_nodes_text(wanted.nodes)} from {found.source}")
        begun_s = time.monotonic()
        place = self._reachable(folder, found.tools.user)
        for attempt in range(_ATTEMPTS):
            addresses = [host.address for host in self._on] or [HOST]
            described = launches(wanted, found.tools, place, free_ports(ports_needed(wanted)), addresses)
            by_address = {host.address: host for host in self._on}
            nodes = [Node(each, by_address.get(each.host)) for each in described]
            try:
                self._start(described, nodes)
            except EnvironmentError_ as error:
                if self._given_up.is_set() or attempt + 1 == _ATTEMPTS or not _port_was_taken(error):
                    raise
                for node in nodes:
                    node.stop()
                continue
            break
        self._say(f"{wanted.kind}: answers after {time.monotonic() - begun_s:.1f} s")
        return Service(wanted.kind, address(described, wanted.kind), nodes)

    def give_up(self) -> None:
        """Wait for nothing any more."""
        self._given_up.set()

    def end_all(self) -> None:
        """End every node, all at the same time, and remove what lay outside the folder."""
        for node in self._nodes:
            node.ask_to_stop()
        for node in self._nodes:
            node.stop()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, described: Sequence[Launch], nodes: Sequence[Node]) -> None:
        with ThreadPoolExecutor(len(described)) as threads:
            for done in [threads.submit(_prepare, each) for each in described]:
                done.result()
        for node in nodes:
            if self._given_up.is_set():
                raise EnvironmentError_("LS0023", f"{node.name} was not started", why="another one failed.")
            self._nodes.append(node)
            node.start()
        for node in nodes:
            node.wait(given_up=self._given_up)

    def _reachable(self, folder: Path, user: User | None) -> Path:
        """``folder``, or if another user has to reach it and cannot, one where it can."""
        if user is None or _others_pass(folder):
            return folder
        temporary = Path(tempfile.gettempdir())
        if not _others_pass(temporary):
            raise EnvironmentError_(
                "LS0023",
                f"{folder.name} has no place for its data",
                why=f"it runs as another user than root, who can reach neither {folder} nor {temporary}.",
                hint="name a folder that others may pass through (chmod o+x), or set TMPDIR to one.",
            )
        elsewhere = Path(tempfile.mkdtemp(prefix="lockstep-services-"))
        self._folders.append(elsewhere)
        elsewhere.chmod(0o711)
        self._say(f"{folder.name}: its user cannot reach {folder}, so its data is in {elsewhere} and not kept")
        return elsewhere


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            found.append(port)
    return found


def _others_pass(folder: Path) -> bool:
    """Whether any user may pass through the folder and those above it, as far as they are there."""
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents) if path.exists())


def _found(kind: Kind) -> Available:
    found = available(kind)
    if isinstance(found, Missing):
        raise EnvironmentError_("LS0022", f"{kind} cannot be had here", why=f"{found.why}.", hint=f"{found.hint}.")
    return found


@contextmanager
def _own_folder() -> Iterator[str]:
    # Errors ignored: what a killed server still had open may be written while the folder is removed.
    with tempfile.TemporaryDirectory(prefix="lockstep-services-", ignore_cleanup_errors=True) as name:
        # Others may pass through, so that a server's own user reaches its data; nobody else can list or read it.
        Path(name).chmod(0o711)
        yield name


def _prepare(launch: Launch) -> None:
    """Write a node's settings, and do once what has to be done before its first start."""
    launch.folder.mkdir(parents=True, exist_ok=True)
    for name, text in launch.files.items():
        path = launch.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if launch.name.startswith("postgres"):
        _keep_password(launch)
    if not launch.prepare or (launch.folder / launch.prepared).exists():
        return
    user = launch.user
    done = subprocess.run(
        launch.prepare,
        capture_output=True,
        text=True,
        timeout=PREPARE_TIMEOUT_S,
        check=False,
        cwd=launch.folder,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-_LOG_TAIL_CHARACTERS:].strip()
        raise EnvironmentError_("LS0023", f"{launch.name} could not be prepared", why=f"it says: {said}")


def _keep_password(launch: Launch) -> None:
    """A password of its own, in files: one for clients, and one for the server's user to be read once."""
    kept = launch.folder / PASSWORD_FILE
    old = kept.read_text(encoding="utf-8").strip().rpartition(":")[2] if kept.exists() else ""
    for name, text in password_files(launch.port, old or secrets.token_urlsafe(16), launch.host).items():
        write_private(launch.folder / name, text)
        if launch.user is not None and name != PASSWORD_FILE:
            os.chown(launch.folder / name, launch.user.uid, launch.user.gid)
    if launch.user is not None:
        os.chown(launch.folder, launch.user.uid, launch.user.gid)


def _port_was_taken(error: EnvironmentError_) -> bool:
    return "already in use" in error.why.lower() or "failed to bind" in error.why.lower()


def _nodes_text(nodes: int) -> str:
    return "one node" if nodes == 1 else f"{nodes} nodes"
