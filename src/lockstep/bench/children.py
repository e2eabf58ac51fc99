"""The processes that a bench starts, each ended with it: feeder, observer, and anything else run as a Python module."""

from __future__ import annotations

from pathlib import Path

from lockstep.control.children import Child, killed, running

__all__ = ["Child", "files_feeder", "journal_feeder", "kafka_feeder", "killed", "observer", "running", "socket_feeder"]


def journal_feeder(folder: Path, store: Path, rate: float) -> Child:
    """A feeder into the journal; it notes what it sent in ``folder/sent.log``."""
    arguments = ["--rate", str(rate), "--log", str(folder / "sent.log"), "--journal", str(store)]
    return Child("the feeder", ["-m", "lockstep.bench.feeder", *arguments], folder / "feeder.log", folder)


def files_feeder(folder: Path, to: Path, rate: float) -> Child:
    """A feeder into a folder of JSON lines; it notes what it sent in ``folder/sent.log``."""
    arguments = ["--rate", str(rate), "--log", str(folder / "sent.log"), "--files", str(to)]
    return Child("the feeder", ["-m", "lockstep.bench.feeder", *arguments], folder / "feeder.log", folder)


def kafka_feeder(folder: Path, servers: str, topic: str, partitions: int, rate: float) -> Child:
    """A feeder into a topic; it notes what was acknowledged in ``folder/sent.log``."""
    arguments = ["--rate", str(rate), "--log", str(folder / "sent.log"), "--kafka", servers, topic, str(partitions)]
    return Child("the feeder", ["-m", "lockstep.bench.feeder", *arguments], folder / "feeder.log", folder)


def socket_feeder(folder: Path, rate: float) -> tuple[Child, int]:
    """A feeder that serves one reader on a port; it begins to send when the reader connects."""
    arguments = ["--rate", str(rate), "--log", str(folder / "sent.log"), "--socket"]
    log = folder / "feeder.log"
    child = Child("the feeder", ["-m", "lockstep.bench.feeder", *arguments], log, folder)
    try:
        child.wait_until(lambda: log.read_bytes().endswith(b"\n"), 30, "starting the feeder")
    except BaseException:
        child.kill()
        raise
    return child, int(log.read_text(encoding="utf-8").split()[0])


def observer(folder: Path, watched: Path, suffix: str) -> Child:
    """An observer of the epochs' files in ``watched``; it notes what it sees in ``folder/seen.log``."""
    arguments = ["-m", "lockstep.bench.observer", str(watched), suffix, str(folder / "seen.log")]
    return Child("the observer", arguments, folder / "observer.log", folder)
