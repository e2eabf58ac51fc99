from __future__ import annotations

import signal
import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest

from lockstep.errors import EnvironmentError_
from lockstep.services.descriptions import KINDS, Kind, Tools, Wish, address, fetched_pom, launches, ports_needed, wish
from lockstep.services.finding import Available, Missing, available, fetched_jars
from lockstep.services.running import free_ports

TOOLS = Tools(Path("/j/java"), "/jars/*", Path("/pg/bin"))


def nodes(kind: Kind, count: int = 1) -> list[str]:
    wanted = Wish(kind, count)
    made = launches(wanted, TOOLS, Path("/there"), range(100, 100 + ports_needed(wanted)))
    return ["\n".join([*each.files.values(), " ".join(each.command)]) for each in made]


@pytest.mark.parametrize(
    "text", ["redis", "kafka=0", "zookeeper=6", "postgres=2", "kafka=many", "kafka=-1", "spark=6", ""]
)
def test_what_is_no_service_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(EnvironmentError_, match="LS0021") as caught:
        wish(text)
    assert all(kind in caught.value.why for kind in KINDS)


def test_every_service_listens_on_the_loopback_alone() -> None:
    for kind in KINDS:
        for said in nodes(kind):
            assert "127.0.0.1" in said
            assert "0.0.0.0" not in said


def test_nodes_of_one_service_share_no_port_and_no_folder() -> None:
    for kind in ("kafka", "zookeeper"):
        wanted = Wish(kind, 3)
        made = launches(wanted, TOOLS, Path("/there"), range(100, 100 + ports_needed(wanted)))
        assert len({each.port for each in made}) == len({each.folder for each in made}) == 3


def test_spark_is_a_master_and_workers_that_listen_where_they_are_told() -> None:
    wanted = Wish("spark", 2)
    made = launches(wanted, TOOLS, Path("/there"), range(100, 100 + ports_needed(wanted)), ["10.0.0.1", "10.0.0.2"])
    assert [each.name for each in made] == ["spark-master", "spark-worker-1", "spark-worker-2"]
    assert address(made, "spark") == "spark://10.0.0.1:100"
    assert [each.environment["SPARK_LOCAL_IP"] for each in made] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    assert all(each.command[-1] == "spark://10.0.0.1:100" for each in made[1:])
    assert len({each.folder for each in made}) == len({each.port for each in made}) == 3


def test_hdfs_is_a_name_node_and_data_nodes_that_share_no_port() -> None:
    wanted = Wish("hdfs", 2)
    made = launches(wanted, TOOLS, Path("/there"), range(100, 100 + ports_needed(wanted)), ["10.0.0.1", "10.0.0.2"])
    assert [each.name for each in made] == ["hdfs-name", "hdfs-data-1", "hdfs-data-2"]
    assert address(made, "hdfs") == "webhdfs://10.0.0.1:101"
    said = [Xml.fromstring(each.files["hdfs-site.xml"]) for each in made]
    values = [{one.findtext("name"): one.findtext("value") for one in each} for each in said]
    assert {each["fs.defaultFS"] for each in values} == {"hdfs://10.0.0.1:100"}
    assert [each["dfs.datanode.address"] for each in values[1:]] == ["10.0.0.1:102", "10.0.0.2:105"]
    assert {each["dfs.replication"] for each in values} == {"2"}


def test_a_single_zookeeper_is_alone_and_three_know_each_other() -> None:
    assert "server.1" not in nodes("zookeeper")[0]
    assert all("server.3=127.0.0.1:105:108" in said for said in nodes("zookeeper", 3))


def test_three_brokers_keep_three_copies_and_go_on_with_two() -> None:
    said = nodes("kafka", 3)[2]
    assert "transaction.state.log.replication.factor=3" in said
    assert "min.insync.replicas=2" in said
    assert "node.id=3" in said
    assert "min.insync.replicas=1" in nodes("kafka")[0]


def test_the_address_of_postgres_names_a_password_file_and_no_password() -> None:
    made = launches(Wish("postgres"), TOOLS, Path("/there"), [5000])
    said = address(made, "postgres")
    assert said == "host=127.0.0.1 port=5000 user=lockstep dbname=postgres passfile=/there/1/pgpass"
    assert made[0].stop_signal is signal.SIGINT


def test_the_pom_is_xml_and_names_no_registry() -> None:
    for kind in ("kafka", "hdfs"):
        assert Xml.fromstring(fetched_pom(kind)).tag == "project"
        assert "://" not in fetched_pom(kind)


def test_kafka_of_the_user_comes_first(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.0.0.jar").touch()
    import os

    found = available("kafka", {**os.environ, "KAFKA_HOME": str(tmp_path)})
    assert isinstance(found, Available)
    assert found.tools.class_path == f"{tmp_path}/libs/*"
    assert not found.fetch
    wrong = available("kafka", {**os.environ, "KAFKA_HOME": str(tmp_path / "libs")})
    assert isinstance(wrong, Missing)


def test_without_maven_kafka_says_how_to_get_it(tmp_path: Path) -> None:
    from lockstep.machine import find_java

    environment = {"JAVA_HOME": str(find_java().home), "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    found = available("kafka", environment)
    assert isinstance(found, Missing)
    assert "lockstep services install kafka" in str(found)
    fetched_jars("kafka", environment).mkdir(parents=True)
    assert isinstance(available("kafka", environment), Available)


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
