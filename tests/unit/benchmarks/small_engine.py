"""An engine of thirty lines, to test the framework of the comparison with: passes the records of a chain on.

``CAREFUL`` goes on after the last line it has written; ``FORGETFUL`` begins again after every start, so that a live
reader sees everything twice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.contract import Launch, Options, Reader, Row, Workload
from benchmarks.engines.readers import GrowingFiles

PID_FILE = "work/engine.pid"


@dataclass(frozen=True)
class SmallEngine:
    name: str
    title: str
    careful: bool
    guarantee: str = "none"

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "0"

    def supports(self, workload: Workload) -> str | None:
        return None if workload.name == "chain_1" else "only chains"

    def launch(self, workload: Workload, folder: Path, options: Options) -> Launch:
        keep = (sys.executable, "-m", "benchmarks.engines.keep_running", PID_FILE)
        return Launch((*keep, sys.executable, __file__, "careful" if self.careful else "forgetful"))

    def ready(self, folder: Path) -> bool:
        return (folder / "work" / "ready").exists()

    def settled(self, folder: Path) -> bool:
        return self.ready(folder)

    def victim(self, folder: Path) -> int | None:
        return int((folder / PID_FILE).read_text(encoding="utf-8"))

    def reader(self, workload: Workload, folder: Path) -> Reader:
        return GrowingFiles(folder / "output")

    def rows(self, workload: Workload, folder: Path) -> list[Row]:
        text = (folder / "output" / "rows.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


CAREFUL = SmallEngine("tests.unit.benchmarks.small_engine:CAREFUL", "careful", careful=True)
FORGETFUL = SmallEngine("tests.unit.benchmarks.small_engine:FORGETFUL", "forgetful", careful=False)


def passed_on(line: bytes) -> bytes:
    row = json.loads(line)
    return json.dumps({"seq": row["seq"], "value": row["value"], "hops": row["hops"] + 1}).encode() + b"\n"


def main() -> None:
    output = Path("output", "rows.jsonl")
    output.touch()
    written = len(output.read_bytes().splitlines()) if sys.argv[1] == "careful" else 0
    Path("work", "ready").touch()
    number, skip = 0, written
    with output.open("ab", buffering=0) as file:
        while True:
            path = Path("input", "events", f"{number:08d}.jsonl")
            if not path.exists():
                time.sleep(0.005)
                continue
            lines = path.read_bytes().splitlines()
            fresh = lines[min(skip, len(lines)) :]
            skip -= len(lines) - len(fresh)
            # One write for all of them: a kill leaves no half line behind.
            os.write(file.fileno(), b"".join(map(passed_on, fresh)))
            number += 1


if __name__ == "__main__":
    main()
