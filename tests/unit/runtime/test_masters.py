"""What Spark is told where the master is not local: cores, the driver's address, the pins of executors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lockstep.config import SparkSettings
from lockstep.errors import RunError
from lockstep.runtime.spark.masters import CORES_UNKNOWN, cluster_conf, driver_address

ANSWERS: dict[str, dict[str, object]] = {}


class Page(BaseHTTPRequestHandler):
    """A master's page."""

    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


@pytest.fixture
def page() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield str(server.server_port)
    server.shutdown()
    server.server_close()


def told(master: str, conf: dict[str, str] | None = None, replicas: int = 2) -> dict[str, str]:
    return cluster_conf(SparkSettings(master=master, conf=conf or {}), replicas, "-Duser.timezone=UTC")


def test_a_local_master_is_told_nothing() -> None:
    assert told("local[4]") == {}


def test_replicas_share_the_cores_that_the_master_tells_of(page: str) -> None:
    ANSWERS["/json/"] = {"url": "spark://127.0.0.1:7077", "status": "ALIVE", "cores": 12}
    port = {"spark.master.ui.port": page}
    assert told("spark://127.0.0.1:7077", port, 3)["spark.cores.max"] == "4"
    assert told("spark://127.0.0.1:7077", port, 16)["spark.cores.max"] == "1"
    assert told("spark://127.0.0.1:7077", {**port, "spark.cores.max": "9"}, 3)["spark.cores.max"] == "9"


@pytest.mark.parametrize("said", [{"url": "spark://127.0.0.1:7078", "status": "ALIVE"}, {"status": "STANDBY"}])
def test_a_page_of_another_master_or_of_one_that_waits_is_not_believed(page: str, said: dict[str, object]) -> None:
    ANSWERS["/json/"] = {"cores": 12, **said}
    conf = told("spark://127.0.0.1:7077", {"spark.master.ui.port": page})
    assert conf["spark.cores.max"] == str(CORES_UNKNOWN)


def test_executors_find_the_driver_where_it_reaches_the_master_or_where_the_user_says() -> None:
    here = told("spark://127.0.0.1:7077", {"spark.cores.max": "1"})
    assert here["spark.driver.host"] == here["spark.driver.bindAddress"] == "127.0.0.1"
    named = told("yarn", {"spark.driver.host": "10.0.0.7"})
    assert named["spark.driver.host"] == named["spark.driver.bindAddress"] == "10.0.0.7"
    assert "spark.cores.max" not in named
    behind = told("yarn", {"spark.driver.host": "10.0.0.7", "spark.driver.bindAddress": "0.0.0.0"})
    assert behind["spark.driver.bindAddress"] == "0.0.0.0"


def test_a_master_without_an_address_needs_the_drivers() -> None:
    with pytest.raises(RunError, match="LS0693") as caught:
        driver_address("yarn")
    assert "spark.driver.host" in caught.value.hint


def test_a_host_that_vanishes_is_noticed_soon_unless_the_user_says_otherwise() -> None:
    assert told("local-cluster[2,1,1024]")["spark.network.timeout"] == "30s"
    own = {"spark.network.timeout": "120s"}
    assert told("local-cluster[2,1,1024]", own)["spark.network.timeout"] == "120s"


def test_executors_have_the_pins_of_the_driver_and_the_users_options() -> None:
    conf = told("local-cluster[2,1,1024]", {"spark.executor.extraJavaOptions": "-Dmine=1"})
    assert conf["spark.executor.extraJavaOptions"] == "-Duser.timezone=UTC -Dmine=1"
    assert conf["spark.executorEnv.TZ"] == "UTC"
    assert conf["spark.executorEnv.PYTHONHASHSEED"] == "0"
