"""A topology with every grouping, a program and windows of tuples, against plain Python; two replicas agree on it."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import lockstep as ls
from lockstep.testing import HEARTBEAT, run

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
SPLIT = """
import json, sys
for line in sys.stdin:
    given = json.loads(line)
    for word in (given["fields"]["line"] or "").split():
        print(json.dumps({"emit": [word, given["fields"]["id"]]}))
    print(json.dumps({"done": given["id"]}), flush=True)
"""


class Count(ls.Bolt):
    """How often a word has come, and in which task."""

    def prepare(self, context: Any) -> None:
        self.task = context.task

    def execute(self, tuple: Any, collector: Any) -> None:
        n = self.state[tuple.word] = self.state.get(tuple.word, 0) + 1
        collector.emit({"word": tuple.word, "n": n, "task": self.task})


class Length(ls.Bolt):
    """The number of lines and letters so far, told with every tick."""

    def prepare(self, context: Any) -> None:
        self.task = context.task

    def execute(self, tuple: Any, collector: Any) -> None:
        if tuple.line is None:
            collector.emit([tuple.id], stream="empty")
            return
        self.state["lines"] = self.state.get("lines", 0) + 1
        self.state["letters"] = self.state.get("letters", 0) + len(tuple.line)

    def tick(self, collector: Any) -> None:
        collector.emit([self.task, self.state.get("lines", 0), self.state.get("letters", 0)])


class Deal(ls.Bolt):
    """Lines to the task with the number that their id ends with."""

    def prepare(self, context: Any) -> None:
        self.tasks = context.tasks_of("take")

    def execute(self, tuple: Any, collector: Any) -> None:
        if tuple.line == "":
            collector.fail(tuple, "nothing in it")
        collector.emit_direct(tuple.id % self.tasks, [tuple.id])


class Take(ls.Bolt):
    """The sum of the ids that came to this task."""

    def prepare(self, context: Any) -> None:
        self.task = context.task

    def execute(self, tuple: Any, collector: Any) -> None:
        self.state["sum"] = self.state.get("sum", 0) + tuple.id
        collector.emit([self.task, self.state["sum"]])


class Three(ls.Bolt):
    """The ids of a window."""

    def execute(self, window: Any, collector: Any) -> None:
        collector.emit([[tuple.id for tuple in window]])


def _topology(folder: Path) -> ls.Topology:
    script = folder / "split.py"
    script.write_text(SPLIT)
    t = ls.Topology("every-grouping")
    t.spout("lines", ls.journal("lines", schema="id bigint, line string"))
    t.bolt("split", ls.program([sys.executable, str(script)]), fields="word string, id bigint").shuffle("lines")
    t.bolt("count", Count(), fields="word string, n bigint, task int", tasks=3).fields("split", "word")
    streams = {"empty": "id bigint"}
    each = t.bolt(
        "each", Length(), "task int, lines bigint, letters bigint", streams=streams, tasks=2, tick_every="2 s"
    )
    each.all("lines")
    t.bolt("deal", Deal(), fields="id bigint").global_("lines")
    t.bolt("take", Take(), fields="task int, sum bigint", tasks=3).direct("deal")
    t.bolt("threes", Three(), fields="ids array<bigint>").global_("lines").window(3)
    for name in ("count", "each", "take", "threes"):
        t.sink(name, ls.files(name), name=f"to_{name}")
    t.sink("each", ls.files("empty"), stream="empty", name="to_empty")
    return t


def _lines() -> list[list[dict[str, Any]]]:
    chance = random.Random(7)
    epochs, number = [], 0
    for _ in range(2):
        lines = []
        for _ in range(12):
            line = chance.choice([None, "", *[" ".join(chance.choices(WORDS, k=chance.randint(1, 4)))] * 4])
            lines.append({"id": number, "line": line})
            number += 1
        epochs.append(lines)
    return epochs


def test_every_grouping_gives_what_plain_python_gives(lockstep_spark: SparkSession, tmp_path: Path) -> None:
    epochs = _lines()
    job = _topology(tmp_path).job()
    result = run(job, {"lines": [epochs[0], epochs[1], HEARTBEAT]}, spark=lockstep_spark, replicas=1)
    lines = [row for epoch in epochs for row in epoch]
    words = Counter(word for row in lines for word in (row["line"] or "").split())

    counted = list(result.sink("to_count"))
    assert {row["word"]: row["n"] for row in counted} == words
    assert Counter(row["word"] for row in counted) == words, "one update for each tuple"
    assert len({(row["word"], row["task"]) for row in counted}) == len(words), "a word has one task"

    letters = [len(row["line"]) for row in lines if row["line"] is not None]
    last = {row["task"]: (row["lines"], row["letters"]) for row in result.sink("to_each")}
    assert last == dict.fromkeys((0, 1), (len(letters), sum(letters))), "every task has had every tuple"
    empty = [row["id"] for row in lines if row["line"] is None]
    assert sorted(row["id"] for row in result.sink("to_empty")) == sorted(empty * 2)

    sums: Counter[int] = Counter()
    for row in lines:
        if row["line"] != "":
            sums[row["id"] % 3] += row["id"]
    assert {row["task"]: row["sum"] for row in result.latest("to_take", by="task")} == sums
    failed = sorted(row["record"] for row in result.dead_letters)
    assert failed == sorted(f'{{"id": {row["id"]}, "line": ""}}' for row in lines if row["line"] == "")
    assert {row["error"] for row in result.dead_letters} == {'bolt "deal" failed a tuple 4 times: nothing in it'}

    ids = [row["id"] for row in lines]
    assert [row["ids"] for row in result.sink("to_threes")] == [ids[at : at + 3] for at in range(0, len(ids), 3)]
