from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.store.sqlite_store import SqliteStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = open_store(tmp_path, "job")
    yield opened
    opened.close()
