"""What Spark is told where tasks do not run in the replica's own JVM: standalone masters, `local-cluster`, YARN."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from collections.abc import Mapping

from lockstep.config import SparkSettings, is_local
from lockstep.errors import RunError
from lockstep.runtime.process_environment import PROCESS_PINS
from lockstep.security import is_loopback

CORES_UNKNOWN = 2
"""What a replica takes of a standalone cluster whose master's page does not say how many cores there are."""
PAGE_PORT = "8080"
"""Where a standalone master has its page, unless `spark.master.ui.port` says otherwise."""
LOOPBACK = "127.0.0.1"
_ASK_TIMEOUT_S = 2.0
_HOST, _BIND, _CORES = "spark.driver.host", "spark.driver.bindAddress", "spark.cores.max"
_DEFAULTS = {
    # An executor that vanished without a word, its cable pulled, say, is noticed in half a minute, not in two or three.
    # Executors say every ten seconds that they live.
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    # Executors that are to come are there before the first epoch, if they come within half a minute: those that come
    # later may compute for a moment before they are asked what they see.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
"""Where Spark's own defaults do not suit; a user may override each."""
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"


def cluster_conf(settings: SparkSettings, replicas: int, java_options: str) -> dict[str, str]:
    """The settings that a master needs which is not local; those that the user gave are among them as they are.

    Executors get the pins that the driver's process has: the time zone, the language, the seed of Python's hashes.
    """
    if is_local(settings.master):
        return {}
    conf = settings.conf
    host = conf.get(_HOST) or driver_address(settings.master)
    own = conf.get(_EXECUTOR_JAVA, "")
    return {
        **{name: conf.get(name, value) for name, value in _DEFAULTS.items()},
        _HOST: host,
        _BIND: conf.get(_BIND, host),
        **_cores(settings, replicas),
        **{f"spark.executorEnv.{name}": value for name, value in PROCESS_PINS.items()},
        _EXECUTOR_JAVA: f"{java_options} {own}".strip(),
    }


def _cores(settings: SparkSettings, replicas: int) -> dict[str, str]:
    """Else the first application takes all cores of a standalone cluster, and the second replica waits for ever."""
    if _CORES in settings.conf:
        return {_CORES: settings.conf[_CORES]}
    if not settings.master.startswith("spark://"):
        return {}
    return {_CORES: str(fair_cores(cluster_cores(settings.master, settings.conf), replicas))}


def fair_cores(cores: int | None, replicas: int) -> int:
    """What one of so many replicas takes of a cluster.

    >>> fair_cores(8, 2), fair_cores(1, 2), fair_cores(None, 2)
    (4, 1, 2)
    """
    return CORES_UNKNOWN if cores is None else max(1, cores // max(1, replicas))


def cluster_cores(master: str, conf: Mapping[str, str]) -> int | None:
    """The cores of all living workers, as the master's page tells them; None if no master that leads can be asked."""
    port = conf.get("spark.master.ui.port", PAGE_PORT)
    # Whatever proxy the environment names is for the world outside.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for host, own in addresses(master):
        try:
            with opener.open(f"http://{host}:{port}/json/", timeout=_ASK_TIMEOUT_S) as answer:
                said = json.load(answer)
        except (OSError, ValueError):
            continue
        if isinstance(said, dict) and said.get("status") == "ALIVE" and str(said.get("url", "")).endswith(f":{own}"):
            return int(said["cores"])
    return None


def addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of each master that a URL names; none where it names none.

    >>> addresses("spark://h1:7077,h2:7078")
    [('h1', 7077), ('h2', 7078)]
    >>> addresses("k8s://https://10.0.0.9:6443"), addresses("yarn")
    ([('10.0.0.9', 6443)], [])
    """
    return [(host.strip("[]"), int(port)) for host, port in re.findall(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d+)", master)]


def driver_address(master: str) -> str:
    """The address of this host at which executors find the driver: the one by which the master is reached.

    >>> driver_address("spark://127.0.0.1:7077"), driver_address("local-cluster[2,1,1024]")
    ('127.0.0.1', '127.0.0.1')
    """
    if master.startswith("local-cluster"):
        return LOOPBACK
    for host, port in addresses(master):
        try:
            kind, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(kind, socket.SOCK_DGRAM) as asked:
                # Nothing is sent: the kernel only says which of its addresses it would use.
                asked.connect(target)
                address = str(asked.getsockname()[0])
        except OSError:
            continue
        return LOOPBACK if is_loopback(address) else address
    raise RunError(
        "LS0693",
        f"nobody knows at which address of this host the executors of {master} find the driver",
        why="the master's URL names no host that can be reached from here."
        if addresses(master)
        else "the master's URL names no host.",
        hint=f'name this host\'s address: [spark] "{_HOST}" = "10.0.0.7", for each replica in [replica.r0.spark].',
    )
