"""What each service is: its nodes, their settings and commands. Pure: nothing is started, read or written."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from xml.sax.saxutils import escape

from lockstep.errors import EnvironmentError_
from lockstep.machine import HADOOP_VERSION
from lockstep.services import readiness

Kind = Literal["kafka", "zookeeper", "postgres", "spark", "hdfs"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NODES_MAX = 5
"""More tells nothing new on one machine, and each node of Kafka takes 180 MB."""
HOST = "127.0.0.1"

Jar = tuple[str, str, str]
"""Group, name and version, as Maven has them."""
KAFKA_VERSION = "4.3.1"
KAFKA_JARS: tuple[Jar, ...] = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
HDFS_JARS: tuple[Jar, ...] = (
    # The rest of what the servers need is among pyspark's jars.
    ("org.apache.hadoop", "hadoop-client-minicluster", HADOOP_VERSION),
    ("org.bouncycastle", "bcprov-jdk18on", "1.78.1"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
)
_AWS_SDK_VERSION = "2.35.4"
S3A_JARS: tuple[Jar, ...] = (
    ("org.apache.hadoop", "hadoop-aws", HADOOP_VERSION),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
)
S3A_SDK: tuple[Jar, ...] = (
    ("software.amazon.awssdk", "s3-transfer-manager", _AWS_SDK_VERSION),
    ("software.amazon.awssdk", "sts", _AWS_SDK_VERSION),
)
"""What Hadoop's client for S3 uses of the SDK in the version that it was made for: 14 MB with what these need, where
the one jar that it asks for has 686."""
_OF_SPARK = ("io.netty", "org.slf4j")
_KAFKA_CLUSTER = "bG9ja3N0ZXAtc2VydmljZQ"
"""Sixteen bytes. Fixed: one that is made up may begin with "-", which Kafka's own tool takes for an option."""
SPARK_WORKER_CORES, SPARK_WORKER_MEMORY = 2, "2g"
"""What a worker offers, whatever the machine has: enough for one executor of each of two replicas."""
POSTGRES_USER = "lockstep"
PASSWORD_FILE = "pgpass"  # noqa: S105 - a name
_PASSWORD_ONCE = "password"  # noqa: S105 - a name

_QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""A server for tests starts often and works little."""


@dataclass(frozen=True)
class Wish:
    """A service, and how many nodes of it."""

    kind: Kind
    nodes: int = 1


@dataclass(frozen=True)
class User:
    """Whom a server runs as, if not as whoever starts it."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Tools:
    """What the machine has for a service: a Java and a class path, or a folder of programs (of Spark: its home)."""

    java: Path = Path("java")
    class_path: str = ""
    programs: Path = Path()
    user: User | None = None


@dataclass(frozen=True)
class Launch:
    """How one node is prepared once, started, asked whether it is ready, and stopped."""

    name: str
    folder: Path
    port: int
    command: tuple[str, ...]
    is_ready: Callable[[str, int], bool]
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    prepared: str = ""
    """A file that is there once ``prepare`` has been done."""
    user: User | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    host: str = HOST
    """The address that it listens on."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has beside those of whoever starts it."""


def wish(text: str) -> Wish:
    """A service as it is asked for.

    >>> wish("zookeeper=3")
    Wish(kind='zookeeper', nodes=3)
    """
    kind, _, number = text.partition("=")
    nodes = int(number) if number.isdigit() else 0 if number else 1
    for known in KINDS:
        most = 1 if known == "postgres" else NODES_MAX
        if kind == known and 1 <= nodes <= most:
            return Wish(known, nodes)
    raise EnvironmentError_(
        "LS0021",
        f'"{text}" is not a service',
        why=f"there are: {', '.join(KINDS)}; of all but postgres up to {NODES_MAX} nodes (of spark workers, of hdfs "
        "data nodes).",
        hint="lockstep services up kafka zookeeper=3 postgres spark=2",
    )


def ports_needed(wanted: Wish) -> int:
    """How many ports its nodes listen on."""
    if wanted.kind == "spark":
        return 2 + wanted.nodes  # the master's two, and the page of each worker
    if wanted.kind == "hdfs":
        return 2 + 3 * wanted.nodes  # the name node's two; each data node's for data, HTTP and Java's clients
    return wanted.nodes * {"kafka": 2, "zookeeper": 3, "postgres": 1}[wanted.kind]


def launches(
    wanted: Wish, tools: Tools, folder: Path, ports: Sequence[int], hosts: Sequence[str] = (HOST,)
) -> list[Launch]:
    """Its nodes, spread over ``hosts`` in turn. ``folder`` is the service's own, ``ports`` are free ones."""
    places = [hosts[number % len(hosts)] for number in range(wanted.nodes)]
    if wanted.kind == "kafka":
        return _kafka(places, tools, folder, ports)
    if wanted.kind == "zookeeper":
        return _zookeeper(places, tools, folder, ports)
    if wanted.kind == "spark":
        return _spark(places, tools, folder, ports)
    if wanted.kind == "hdfs":
        return _hdfs(places, tools, folder, ports)
    return [_postgres(places[0], tools, folder, ports[0])]


def address(nodes: Sequence[Launch], kind: Kind) -> str:
    """What clients are given: ``host:port,host:port``, for Postgres a connection string without the password.

    The password is in a file that only this user can read, which the string names. For Spark it is the master's URL,
    for HDFS that of the name node's HTTP side, whose folder has the settings for programs that want HADOOP_CONF_DIR.
    """
    if kind == "spark":
        return f"spark://{nodes[0].host}:{nodes[0].port}"
    if kind == "hdfs":
        return f"webhdfs://{nodes[0].host}:{nodes[0].port}"
    if kind == "postgres":
        node = nodes[0]
        where = f"host={node.host} port={node.port} user={POSTGRES_USER} dbname=postgres"
        return f"{where} passfile={node.folder / PASSWORD_FILE}"
    return ",".join(f"{node.host}:{node.port}" for node in nodes)


def fetched_pom(kind: Kind) -> str:
    """What Maven's client is given to fetch a service that is fetched: a broker, or HDFS, with what each needs.

    >>> "<artifactId>kafka_2.13</artifactId>" in fetched_pom("kafka")
    True
    """
    return _pom(_dependencies(HDFS_JARS, ("*",)) if kind == "hdfs" else _dependencies(KAFKA_JARS))


def jars_pom(jars: Sequence[Jar]) -> str:
    """What Maven's client is given to fetch these jars alone.

    >>> "<exclusion><groupId>*</groupId>" in jars_pom([("g", "a", "1")])
    True
    """
    return _pom(_dependencies(jars, ("*",)))


def s3a_pom() -> str:
    """What Maven's client is given to fetch Spark's client for S3, without what Spark has.

    >>> "bundle" in s3a_pom()
    False
    """
    return _pom(_dependencies(S3A_JARS, ("*",)) + _dependencies(S3A_SDK, _OF_SPARK))


def _dependencies(jars: Sequence[Jar], without: Sequence[str] = ()) -> str:
    """Jars with what they need, but for that of some groups."""
    left_out = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>" for group in without
    )
    return "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{left_out}</exclusions></dependency>"
        for group, name, version in jars
    )


def _pom(dependencies: str) -> str:
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>lockstep</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )


def _kafka(hosts: Sequence[str], tools: Tools, folder: Path, ports: Sequence[int]) -> list[Launch]:
    nodes = len(hosts)
    clients, controllers = ports[:nodes], ports[nodes:]
    voters = ",".join(f"{index + 1}@{hosts[index]}:{port}" for index, port in enumerate(controllers))
    found = []
    for index, host in enumerate(hosts):
        own = folder / f"{index + 1}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": index + 1,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{host}:{clients[index]},CONTROLLER://{host}:{controllers[index]}",
            "advertised.listeners": f"PLAINTEXT://{host}:{clients[index]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": own / "data",
            **_small_kafka(nodes),
        }
        config = str(own / "server.properties")
        java = (str(tools.java), *_QUICK_JVM, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        on_path = (*java, "-cp", tools.class_path)
        found.append(
            Launch(
                f"kafka-{index + 1}",
                own,
                clients[index],
                (*on_path, "kafka.Kafka", config),
                lambda host, port: readiness.kafka_brokers(host, port) == nodes,
                {"server.properties": _properties(settings)},
                (*on_path, "kafka.tools.StorageTool", "format", "-t", _KAFKA_CLUSTER, "-c", config),
                "data/meta.properties",
                host=host,
            )
        )
    return found


def _small_kafka(nodes: int) -> dict[str, object]:
    """Settings of a small cluster that loses a broker and goes on: the defaults are for large ones."""
    in_sync = min(2, nodes)
    return {
        "default.replication.factor": nodes,
        "min.insync.replicas": in_sync,
        "num.partitions": 1,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": nodes,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": nodes,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "controller.quorum.election.timeout.ms": 500,
    }


def _zookeeper(hosts: Sequence[str], tools: Tools, folder: Path, ports: Sequence[int]) -> list[Launch]:
    nodes = len(hosts)
    clients, peers, elections = ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :]
    ensemble = {
        f"server.{index + 1}": f"{hosts[index]}:{peer}:{election}"
        for index, (peer, election) in enumerate(zip(peers, elections, strict=True))
    }
    found = []
    for index, host in enumerate(hosts):
        own = folder / f"{index + 1}"
        settings = {
            "tickTime": 500,
            "initLimit": 20,
            "syncLimit": 4,
            "dataDir": own / "data",
            "clientPort": clients[index],
            "clientPortAddress": host,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok",
            "maxClientCnxns": 0,
            "autopurge.purgeInterval": 1,
            **(ensemble if nodes > 1 else {}),
        }
        java = (str(tools.java), *_QUICK_JVM, "-Xmx128m", "-cp", tools.class_path)
        found.append(
            Launch(
                f"zookeeper-{index + 1}",
                own,
                clients[index],
                (*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(own / "zoo.cfg")),
                readiness.zookeeper_serves,
                {"zoo.cfg": _properties(settings), "data/myid": f"{index + 1}\n"},
                host=host,
            )
        )
    return found


def _spark(hosts: Sequence[str], tools: Tools, folder: Path, ports: Sequence[int]) -> list[Launch]:
    """A standalone master, and a worker on each of ``hosts``; the master is on the first of them."""
    first, (port, page, *pages) = hosts[0], ports
    # Workers are asked for the first three times within some seconds, and the master boots meanwhile.
    words: tuple[str, ...] = ("--host", first, "--port", str(port), "--webui-port", str(page))
    ready: Callable[[str, int], bool] = lambda host, _port: readiness.spark_master_serves(host, page)  # noqa: E731
    nodes = [_spark_node("spark-master", first, port, tools, folder / "master", "master.Master", words, ready)]
    for index, host in enumerate(hosts):
        own = folder / f"worker-{index + 1}"
        sizes = ("--cores", str(SPARK_WORKER_CORES), "--memory", SPARK_WORKER_MEMORY, "--work-dir", str(own / "work"))
        words = ("--host", host, "--webui-port", str(pages[index]), *sizes, f"spark://{first}:{port}")
        ready = readiness.spark_worker_serves
        name = f"spark-worker-{index + 1}"
        nodes.append(_spark_node(name, host, pages[index], tools, own, "worker.Worker", words, ready))
    return nodes


def _spark_node(
    name: str,
    host: str,
    port: int,
    tools: Tools,
    own: Path,
    program: str,
    words: tuple[str, ...],
    is_ready: Callable[[str, int], bool],
) -> Launch:
    command = ("bash", str(tools.programs / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", *words)
    environment = {
        "SPARK_HOME": str(tools.programs),
        "JAVA_HOME": str(tools.java.parent.parent),
        # Their pages listen on every address otherwise.
        "SPARK_LOCAL_IP": host,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        # Nobody submits applications over HTTP, at a port that two masters would fight for.
        "SPARK_DAEMON_JAVA_OPTS": " ".join((*_QUICK_JVM, "-Dspark.master.rest.enabled=false")),
    }
    return Launch(name, own, port, command, is_ready, host=host, environment=environment)


def _hdfs(hosts: Sequence[str], tools: Tools, folder: Path, ports: Sequence[int]) -> list[Launch]:
    """A name node on the first of ``hosts``, and a data node on each."""
    first, (rpc, http, *others) = hosts[0], ports
    common = {
        "fs.defaultFS": f"hdfs://{first}:{rpc}",
        "dfs.namenode.rpc-address": f"{first}:{rpc}",
        "dfs.namenode.http-address": f"{first}:{http}",
        "dfs.replication": min(2, len(hosts)),
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.heartbeat.interval": 1,
    }
    own = folder / "name"
    words = ("-format", "-nonInteractive", "-force")
    named = {**common, "dfs.namenode.name.dir": f"file://{own / 'data'}"}
    name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    java = _hadoop_java(tools, own)
    nodes = [
        Launch(
            "hdfs-name",
            own,
            http,
            (*java, name_node),
            readiness.hdfs_serves,
            _site_files(named),
            (*java, name_node, *words),
            "data/current/VERSION",
            host=first,
        )
    ]
    for index, host in enumerate(hosts):
        own = folder / f"data-{index + 1}"
        data, page, ipc = others[3 * index : 3 * index + 3]
        settings = {
            **common,
            "dfs.datanode.data.dir": f"file://{own / 'data'}",
            "dfs.datanode.hostname": host,
            "dfs.datanode.address": f"{host}:{data}",
            "dfs.datanode.http.address": f"{host}:{page}",
            "dfs.datanode.ipc.address": f"{host}:{ipc}",
        }
        command = (*_hadoop_java(tools, own), "org.apache.hadoop.hdfs.server.datanode.DataNode")
        ready: Callable[[str, int], bool] = lambda _host, _port: readiness.hdfs_data_nodes(first, http) == len(hosts)  # noqa: E731
        nodes.append(Launch(f"hdfs-data-{index + 1}", own, page, command, ready, _site_files(settings), host=host))
    return nodes


def _hadoop_java(tools: Tools, own: Path) -> tuple[str, ...]:
    return (str(tools.java), *_QUICK_JVM, "-Xmx192m", "-cp", f"{own}:{tools.class_path}")


def _site_files(settings: Mapping[str, object]) -> dict[str, str]:
    """Hadoop's settings, as its programs find them on their class path or by HADOOP_CONF_DIR."""
    lines = "".join(
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in settings.items()
    )
    text = f"<configuration>\n{lines}</configuration>\n"
    return {"core-site.xml": text, "hdfs-site.xml": text}


def _postgres(host: str, tools: Tools, folder: Path, port: int) -> Launch:
    own = folder / "1"
    data = str(own / "data")
    settings = {"listen_addresses": host, "port": port, "unix_socket_directories": "", "shared_buffers": "16MB"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    init = ("-D", data, "-U", POSTGRES_USER, f"--pwfile={own / _PASSWORD_ONCE}", "--auth=scram-sha-256")
    return Launch(
        "postgres-1",
        own,
        port,
        (str(tools.programs / "postgres"), "-D", data, *options),
        readiness.postgres_answers,
        {},
        (str(tools.programs / "initdb"), *init, "-E", "UTF8", "--locale=C", "--no-sync"),
        "data/PG_VERSION",
        tools.user,
        # A fast shutdown; SIGTERM would wait for every client to leave.
        signal.SIGINT,
        host,
    )


def password_files(port: int, password: str, host: str = HOST) -> dict[str, str]:
    """The file for clients, and the one that ``initdb`` reads once.

    >>> password_files(5432, "secret")
    {'pgpass': '127.0.0.1:5432:*:lockstep:secret\\n', 'password': 'secret\\n'}
    """
    return {PASSWORD_FILE: f"{host}:{port}:*:{POSTGRES_USER}:{password}\n", _PASSWORD_ONCE: f"{password}\n"}


def _properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
