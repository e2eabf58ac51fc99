"""Servers that the whole ring shares: started once, ended with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstep import services


@pytest.fixture(scope="session")
def postgres() -> Iterator[services.Service]:
    """A Postgres of its own."""
    if (why_not := services.missing("postgres")) is not None:
        pytest.skip(why_not)
    with services.running("postgres") as there:
        yield there["postgres"]
