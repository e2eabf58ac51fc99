"""What of the Postgres sink is pure: statements, values, what an error means. The rest is in tests/cluster."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from lockstep.connect.protocols import Place
from lockstep.connect.registry import sink_side
from lockstep.connect.sinks import postgres_server
from lockstep.connect.sinks.postgres import Names, _check_key_version, _merge
from lockstep.connect.sinks.postgres_server import explained
from lockstep.connect.specs import postgres
from lockstep.errors import ConnectError
from tests.unit.connect.sinks_for_connect import SCHEMA


class Said(Exception):
    def __init__(self, sqlstate: str | None, text: str = "it says so") -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "code"),
    [
        ("53100", "LS0508"),
        ("55P03", "LS0511"),
        ("22003", "LS0515"),
        ("23502", "LS0515"),
        ("54000", "LS0515"),
        ("57P03", "LS0533"),
        (None, "LS0533"),
        ("42501", "LS0509"),
    ],
)
def test_each_kind_of_trouble_has_its_code(sqlstate: str | None, code: str) -> None:
    assert explained(Said(sqlstate), 30).code == code


def test_of_copied_rows_the_last_one_of_a_key_is_merged() -> None:
    said = _merge(Names("s.t"), ["a", "b", "v"], ["a", "b"], "staged")
    assert 'DISTINCT ON ("a", "b")' in said
    assert 'ORDER BY "a", "b", lockstep_row DESC ON CONFLICT ("a", "b") DO UPDATE SET lockstep_epoch = ' in said
    assert "CONFLICT" not in _merge(Names("t"), ["a"], [], "staged")


def test_a_server_that_cannot_hold_nulls_in_keys_is_refused() -> None:
    with pytest.raises(ConnectError, match="LS0535 Postgres 14"):
        _check_key_version(140_011)
    _check_key_version(150_000)


def test_without_the_extra_the_error_names_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "find_spec", lambda name: None)
    with pytest.raises(ConnectError, match="LS0531") as caught:
        sink_side(postgres("host=db", table="t"), "alerts", place).open(SCHEMA)
    assert "lockstep[postgres]" in caught.value.hint


def test_an_address_that_does_not_parse_is_not_tried_again_and_again(place: Place) -> None:
    began_s = time.monotonic()
    with pytest.raises(ConnectError, match="LS0533"):
        sink_side(postgres("host=db nonsense=1", table="t"), "alerts", place).open(SCHEMA)
    assert time.monotonic() - began_s < 10


def test_the_client_is_imported_only_when_a_server_is_asked() -> None:
    code = "import sys, lockstep.connect.sinks.postgres; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
