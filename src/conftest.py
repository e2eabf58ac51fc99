"""Examples in docstrings that need a store have one of their own; the client's talk to a service in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def client(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """``client``, where an example is one of the client's; others have no service."""
    if not request.node.name.startswith("lockstep.serve.client"):
        yield
        return
    from starlette.testclient import TestClient

    from lockstep.serve.app import create_app
    from lockstep.serve.client import Client
    from lockstep.serve.service import Service
    from tests.unit.serve.conftest import LOCAL, made_project

    folder: Path = tmp_path_factory.mktemp("service")
    with TestClient(create_app(Service(made_project(folder))), base_url=LOCAL) as http:
        doctest_namespace["client"] = Client(LOCAL, http=http)
        yield
    doctest_namespace.pop("client")


@pytest.fixture(autouse=True)
def folder_of_its_own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples that write journals write them elsewhere, each into an empty project."""
    if request.node.name.startswith("lockstep.connect.writing"):
        monkeypatch.chdir(tmp_path_factory.mktemp("project"))
