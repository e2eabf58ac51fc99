"""What `test_hosts.py` does with three hosts, in a network of its own; answers with one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lockstep import services
from lockstep.services.hosts import HERE, Host, hosts

TIMEOUT_S = 60.0
MODES = """
import sys
from lockstep.services.readiness import zookeeper_mode
print(zookeeper_mode(sys.argv[1], int(sys.argv[2])))
"""


def until(condition: Callable[[], bool]) -> bool:
    """Whether it came true in time."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def asked_from(host: Host, node: services.Node) -> str:
    """What a node says to somebody on another host."""
    words = [sys.executable, "-c", MODES, *node.address.rsplit(":", 1)]
    return subprocess.run(host.command(words), capture_output=True, text=True, check=True).stdout.strip()


def main(folder: Path) -> dict[str, object]:
    """Kill the leader's host, switch it on again, pull a cable, and fill a disk."""
    seen: dict[str, object] = {"here": HERE}
    disk_bytes = 64 * 2**20
    with (
        hosts(3, folder, disk_bytes) as made,
        services.running("zookeeper=3", folder=folder / "services", on=made) as there,
    ):
        nodes = there["zookeeper"].nodes
        mode = {node.name: node.zookeeper_mode for node in nodes}
        leader = next(node for node in nodes if mode[node.name]() == "leader")
        others = [node for node in nodes if node is not leader]
        assert leader.host is not None
        seen["on hosts of their own"] = sorted({node.address.rsplit(":", 1)[0] for node in nodes})
        seen["seen from another host"] = asked_from(_host(others[0]), leader)
        (leader.host.folder / "kept").write_text("yes")
        listing = _host(others[0]).command(["ls", str(leader.host.folder)])
        seen["files that others see"] = subprocess.run(listing, capture_output=True, check=True).stdout.decode().split()
        leader.host.kill()
        seen["goes on without its host"] = until(
            lambda: sorted(mode[node.name]() for node in others) == ["follower", "leader"]
        )
        leader.stop()
        leader.host.start()
        leader.start()
        leader.wait()
        seen["its disk after the power cut"] = (leader.host.folder / "kept").read_text()
        cut = _host(others[0])
        cut.pull_cable()
        seen["cut off"] = until(lambda: mode[others[0].name]() == "")
        cut.plug_in()
        seen["plugged in again"] = until(lambda: mode[others[0].name]() in {"leader", "follower"})
        cut.fill_disk()
        seen["on a full disk"] = written(cut)
        cut.free_disk()
        seen["on the disk after that"] = written(cut)
    return seen


def written(host: Host) -> str:
    """What the system says when a megabyte is written on a host; nothing if it could be."""
    words = ["dd", "if=/dev/zero", f"of={host.folder / 'file'}", "bs=1M", "count=1", "status=none"]
    done = subprocess.run(host.command(words), capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition(": ")[2]


def _host(node: services.Node) -> Host:
    assert node.host is not None
    return node.host


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
