"""Spark at the address of the checkpoints: refused before anything is written if it has no client for it."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from lockstep.errors import ServiceError
from lockstep.runtime.spark.address import address_conf, check_address


def test_without_sparks_client_for_s3_the_job_is_refused_with_what_to_fetch() -> None:
    class Loader:
        def loadClass(self, name: str) -> None:  # noqa: N802
            raise Py4JError(name)

    session: Any = MagicMock()
    session._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader.return_value = Loader()
    with pytest.raises(ServiceError) as caught:
        check_address(session, "s3a://shop/lockstep")
    assert caught.value.code == "LS0704" and "hadoop-aws" in caught.value.hint


def test_hdfs_gets_the_file_manager_that_replaces_and_paths_keep_theirs() -> None:
    (manager,) = address_conf("hdfs://n1:8020/lockstep", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}).values()
    assert manager.endswith("FileContextBasedCheckpointFileManager")
    assert address_conf("file:///mnt/shared", {}) == {}
    check_address(MagicMock(side_effect=AssertionError), "file:///mnt/shared")
