"""What `lockstep new` writes: the files of a small project, each with the project's name in it."""

from __future__ import annotations

from string import Template

_JOB = '''\
"""$name: how many orders of each product in every ten seconds, and what they brought in.

    lockstep run job.py                           # runs until Ctrl-C; the same command goes on where it was
    python make_orders.py | lockstep put orders   # in a second terminal: records in
    lockstep tail out/revenue --follow            # in a third one: published results out
"""

import lockstep as ls
from lockstep import F

job = ls.Job("$name")

orders = job.source("orders", ls.journal("orders", schema="product string, cents bigint, at timestamp"))

(
    orders.event_time("at", out_of_order="5 seconds", idle_after="10 seconds")
    .filter("cents > 0")  # SQL, or F.col("cents") > 0, or lambda r: r.cents > 0: all run inside Spark
    .key_by("product")
    .window(ls.tumbling("10 seconds"))
    .agg(orders=F.count("*"), cents=F.sum("cents"))  # columns: product, window_start, window_end, orders, cents
    .to(ls.files("out/revenue"), name="revenue")
)
'''

_TEST = '''\
"""The whole job on records that stand here. `pytest` runs it; Spark takes some seconds to start."""

from job import job
from lockstep.testing import CRASH, run


def order(product, cents, at):
    return {"product": product, "cents": cents, "at": f"2026-01-01T{at}Z"}


def test_orders_are_added_up_by_product_and_ten_seconds(lockstep_spark):
    result = run(
        job,
        {
            "orders": [
                [order("tea", 350, "09:00:01"), order("milk", 120, "09:00:02")],  # epoch 0
                [order("tea", 500, "09:00:09"), order("tea", 0, "09:00:05")],  # epoch 1: nothing is sold for 0 cents
                CRASH,  # every replica dies with epoch 1 published and not committed, and comes back
                [order("milk", 240, "09:00:10")],  # epoch 2: the next ten seconds
            ]
        },
        spark=lockstep_spark,
        until_done=True,  # bring event time to its end, so that every window closes
    )
    first = {"window_start": "2026-01-01T09:00:00Z", "window_end": "2026-01-01T09:00:10Z"}
    second = {"window_start": "2026-01-01T09:00:10Z", "window_end": "2026-01-01T09:00:20Z"}
    assert result.sink("revenue") == [
        {"product": "tea", **first, "orders": 2, "cents": 850},
        {"product": "milk", **first, "orders": 1, "cents": 120},
        {"product": "milk", **second, "orders": 1, "cents": 240},
    ]
'''

_CONFTEST = '''\
"""`lockstep_spark` for the tests: Spark, started once. A failing assert shows the rows that differ."""

pytest_plugins = ["lockstep.testing.fixtures"]
'''

_SETTINGS = """\
# Settings of `lockstep run` in this folder; `--set KEY=VALUE` on the command line wins.
# What stands after a # is the default. All of them: docs/reference/settings.md of Lockstep.

[run]
replicas = 2                      # how many compute every epoch; with 1 a crash costs the seconds until it is back
# epoch_interval_s = 0.1          # the shortest epoch: a number of seconds, or "200 ms"
# spares = 1                      # warm processes that wait to replace a replica that died (about 0.6 GB each)
# on_divergence = "stop"          # if replicas disagree and no third can tell who is right; or "continue"
# dead_letters_max = 10_000       # records set aside (`lockstep dead-letters`) before the job stops

[spark]
# master = "local[1]"             # what each replica computes with: "local[4]" for four cores
# driver_memory = "1g"
# "spark.sql.shuffle.partitions" = 4
"""

_README = """\
# $name

A Lockstep job: from orders to how many there were of each product in every ten seconds, and what they brought in.

| file | |
|---|---|
| `job.py` | the job |
| `test_job.py`, `conftest.py` | a test of all of it, with a crash in the middle |
| `lockstep.toml` | settings |
| `make_orders.py` | records to try it with, as JSON lines |

```sh
lockstep plan job.py                   # the graph, without starting anything
lockstep check job.py                  # with Spark: types, guarantees, what two replicas could disagree about
pytest                                 # the test (pip install pytest, if it is not there)
lockstep run job.py                    # two replicas and a live table, until Ctrl-C
```

and beside it, in other terminals and this folder:

```sh
python make_orders.py | lockstep put orders                # records in, ten a second, until Ctrl-C
lockstep tail out/revenue --follow                         # published results out, every ten seconds
lockstep status                                            # healthy or degraded, lag, latency
kill -9 $$(cat .lockstep/jobs/$name/replicas/r0/lock)   # kill a replica, and watch nothing happen
```

The job keeps everything in `.lockstep/`: run it again and it goes on where it was.
To begin from nothing, stop it and remove `.lockstep/` and `out/`.
"""

_MAKE_ORDERS = '''\
"""Orders as JSON lines, ten a second until Ctrl-C: python make_orders.py | lockstep put orders"""

import json
import random
import time
from datetime import UTC, datetime

CENTS = {"tea": 350, "coffee": 420, "milk": 120}

try:
    while True:
        product = random.choice([*CENTS])
        cents = CENTS[product] * random.randint(1, 3)
        print(json.dumps({"product": product, "cents": cents, "at": datetime.now(UTC).isoformat()}), flush=True)
        time.sleep(0.1)
except (KeyboardInterrupt, BrokenPipeError):
    raise SystemExit(0) from None
'''

_IGNORED = """\
.lockstep/
out/
__pycache__/
.pytest_cache/
"""


def project_files(name: str) -> dict[str, str]:
    """Every file of a new project by its name, in the order in which one reads them.

    >>> list(project_files("shop"))
    ['README.md', 'job.py', 'test_job.py', 'conftest.py', 'make_orders.py', 'lockstep.toml', '.gitignore']
    """
    texts = {
        "README.md": _README,
        "job.py": _JOB,
        "test_job.py": _TEST,
        "conftest.py": _CONFTEST,
        "make_orders.py": _MAKE_ORDERS,
        "lockstep.toml": _SETTINGS,
        ".gitignore": _IGNORED,
    }
    return {file: Template(text).substitute(name=name) for file, text in texts.items()}
