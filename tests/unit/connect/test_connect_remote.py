"""Addresses: what they name, where HDFS is found, and what is said without the client of S3."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lockstep.connect.remote.hdfs import http_addresses
from lockstep.connect.remote.paths import RemotePath, location
from lockstep.connect.specs import files
from lockstep.errors import ConnectError
from lockstep.runtime.endings import is_job_error

SITE = """<configuration>
<property><name>fs.defaultFS</name><value>hdfs://shop</value></property>
<property><name>dfs.ha.namenodes.shop</name><value>one, two</value></property>
<property><name>dfs.namenode.http-address.shop.one</name><value>h1:9871</value></property>
<property><name>dfs.namenode.http-address.shop.two</name><value>h2:9871</value></property>
<property><name>dfs.namenode.http-address</name><value>0.0.0.0:9999</value></property>
</configuration>"""


@pytest.mark.parametrize(
    ("address", "nodes"),
    [
        ("hdfs://shop", ["h1:9871", "h2:9871"]),
        ("hdfs://", ["h1:9871", "h2:9871"]),
        ("hdfs://other:8020", ["other:9999"]),
        ("webhdfs://other:1234", ["other:1234"]),
    ],
)
def test_name_nodes_are_found_by_the_settings_of_the_cluster(tmp_path: Path, address: str, nodes: list[str]) -> None:
    (tmp_path / "hdfs-site.xml").write_text(SITE)
    assert http_addresses(address, {"HADOOP_CONF_DIR": str(tmp_path)}) == nodes


def test_an_address_without_a_host_needs_the_settings() -> None:
    with pytest.raises(ConnectError, match="HADOOP_CONF_DIR") as caught:
        http_addresses("hdfs://", {})
    assert caught.value.code == "LS0554"


def test_without_the_client_of_s3_one_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConnectError, match=r"lockstep\[s3\]") as caught:
        location("s3a://nobody-asked-before/out").exists()
    assert (caught.value.code, is_job_error(caught.value)) == ("LS0552", True)


def test_an_address_is_taken_as_it_is_written() -> None:
    path = location("s3a://shop/out%20there/é//data/")
    assert isinstance(path, RemotePath)
    assert (path.address, path.key) == ("s3a://shop", "out%20there/é/data")
    assert files("hdfs:///out").describe() == "files hdfs:///out (parquet)"
    assert files("file:///out").path == "file:///out"
