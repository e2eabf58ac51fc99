"""What `lockstep check` finds in the code of Python functions."""

from __future__ import annotations

import datetime as dt
import functools
import os
import random
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from random import randint
from typing import Any

import pytest

from lockstep.control.start.suspect_code import suspicions

COUNT = 0


def _counts(record: Any) -> int:
    global COUNT
    COUNT += 1
    return COUNT


def _helper(value: int) -> float:
    return value + random.random()


def _imports(record: Any) -> float:
    import time as clock

    return clock.time()


class _Stamps:
    def __call__(self, record: Any) -> int:
        return time.time_ns()


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda record: time.time(), "time.time"),
        (lambda record: dt.datetime.now(), "dt.datetime.now"),
        (lambda record: datetime.utcnow(), "datetime.utcnow"),
        (lambda record: dt.date.today(), "dt.date.today"),
        (lambda record: randint(1, 6), "randint"),
        (lambda record: uuid.uuid4(), "uuid.uuid4"),
        (lambda record: os.environ["HOME"], "os.environ"),
        (lambda record: open("rates.csv"), "open"),  # noqa: PTH123, SIM115
        (lambda record: [_helper(value) for value in record], "random.random"),
        (_counts, "global COUNT"),
        (_imports, "time"),
        (_Stamps(), "time.time_ns"),
        (functools.partial(_counts, {}), "global COUNT"),
    ],
)
def test_the_usual_suspects_are_found(function: Callable[..., Any], what: str) -> None:
    assert what in [found.what for found in suspicions(function)]


@pytest.mark.parametrize(
    "function",
    [
        lambda record: {"day": record["at"].strftime("%d"), "n": record["n"] + 1},
        lambda record: uuid.uuid5(uuid.NAMESPACE_DNS, record["user"]),
        lambda record: datetime.fromisoformat(record["at"]),
        lambda record: os.fsencode(record["name"]),
        len,
    ],
)
def test_functions_of_the_record_alone_are_not_suspected(function: Callable[..., Any]) -> None:
    assert suspicions(function) == []


def test_functions_that_call_each_other_are_read_once() -> None:
    assert suspicions(_even) == []


def _even(number: int) -> bool:
    return number == 0 or _odd(number - 1)


def _odd(number: int) -> bool:
    return number != 0 and _even(number - 1)
