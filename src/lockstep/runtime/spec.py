"""What the supervisor tells a replica's process when it starts it, and what the process answers when it ends.

Light on purpose: an agent, which starts the processes, is up as soon as it has loaded this.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lockstep.credentials import write_private
from lockstep.store.home import job_folder

if TYPE_CHECKING:
    from lockstep.config import Settings
    from lockstep.connect.protocols import Place

EXIT_DRAINED = 0
EXIT_FAILED = 1
EXIT_JOB_ERROR = 10
"""The job itself is wrong (a function raised, a file changed): starting again would fail again."""
EXIT_CHECKPOINT = 11
"""The replica's own checkpoint is of no use: set it aside and seed."""
EXIT_DIVERGED = 12
EXIT_RETIRED = 13
"""Another incarnation acts for this replica now."""

Seed = Literal["auto", "peer"]
SUPERVISOR_SETTINGS = frozenset(
    {
        "replicas",
        "spares",
        "restarts_max",
        "restart_window_s",
        "restart_backoff_s",
        "restart_backoff_max_s",
        "spread_after_s",
        "retention_epochs_min",
        "compact_sinks",
        "compact_keep_epochs",
    }
)
"""Settings of `[run]` that no replica reads, or only at its start: they change without anybody's restart."""
SUPERVISOR_TABLES = frozenset({"policy", "environments"})
"""Tables of settings that replicas do not read."""


@dataclass(frozen=True)
class ReplicaSpec:
    """One start of one replica."""

    project: str
    """Empty, like ``home``, until the agent that starts the process says where they are on its host."""
    home: str
    """Where Lockstep keeps what it has on this host (".lockstep")."""
    job: str
    job_file: str
    """Relative to the job's folder until the agent has made it whole."""
    code_hash: str
    replica: str
    seed: Seed
    settings: dict[str, Any]
    address: str = ""
    """Where the job's store is; empty: in ``home``."""
    jvm: list[str] = field(default_factory=list)
    """The command of its JVM, to be started before anything is loaded; empty: PySpark starts one."""
    jvm_conf: dict[str, str] = field(default_factory=dict)
    """What that JVM is told in a file of properties."""
    host: str = ""
    """The host that it lives on, as the registry knows it; empty if the job lives on one host alone."""
    process: str = ""
    """The handle of its process: a word in the store is of this process if it has it."""
    generation: int = 1
    """Which generation of the job's spec it is of."""
    results_of: int = 1
    """The generation with which results last changed: it publishes the epochs whose entries say so."""
    environment: dict[str, str] = field(default_factory=dict)
    """Another environment than the agent's own: "python", and "java" (its home), as paths on every host."""
    takes_older: bool = False
    """Whether it may go on from the state of an older generation: it is the first of its own."""

    def write(self, path: Path) -> None:
        """Write it where the process will read it, and nobody else: settings may hold credentials."""
        write_private(path, json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> ReplicaSpec:
        """Read what the supervisor wrote; what this release does not know is passed over: it may be a newer one's."""
        written = json.loads(path.read_text(encoding="utf-8"))
        return ReplicaSpec(**{key: value for key, value in written.items() if key in ReplicaSpec.__dataclass_fields__})

    @cached_property
    def likeness(self) -> str:
        """A fingerprint of all that two replicas of one run have in common: code, settings, places.

        >>> spec = ReplicaSpec("/p", "/p/.lockstep", "job", "job.py", "hash", "r0", "auto", {})
        >>> spec.likeness == replace(spec, replica="r1", seed="peer").likeness
        True
        >>> spec.likeness == replace(spec, code_hash="another").likeness
        False

        What only whoever supervises asks for may change while replicas go on.

        >>> spec.likeness == replace(spec, settings={"run": {"replicas": 3}}).likeness
        True
        """
        settings = {key: value for key, value in self.settings.items() if key not in SUPERVISOR_TABLES}
        run = {key: value for key, value in settings.pop("run", {}).items() if key not in SUPERVISOR_SETTINGS}
        common = replace(
            self,
            replica="",
            seed="auto",
            jvm=[],
            jvm_conf={},
            host="",
            takes_older=False,
            settings={**settings, "run": run},
        )
        return hashlib.sha256(json.dumps(asdict(common), sort_keys=True).encode()).hexdigest()

    @property
    def place(self) -> Place:
        """Where connectors work."""
        from lockstep.connect.protocols import Place

        settings = self.parsed_settings()
        kept = settings.run.behind_epochs_max
        return Place(
            Path(self.project), Path(self.home), self.job, kept, self.address, settings.journals, settings.checkpoints
        )

    @property
    def store(self) -> str:
        """The address of the job's store."""
        from lockstep.store.opening import address_in

        return self.address or address_in(Path(self.home))

    @property
    def folder(self) -> Path:
        """The replica's own folder: checkpoint, scratch space, log."""
        return replica_folder(Path(self.home), self.job, self.replica)

    @property
    def tables(self) -> Path:
        """Where the copies of the job's tables are."""
        return job_folder(Path(self.home), self.job) / "tables"

    def parsed_settings(self) -> Settings:
        """The settings as they were validated by the supervisor."""
        from lockstep.config import Settings

        return Settings.model_validate(self.settings)


def replica_names(count: int) -> list[str]:
    """The names of a job's replicas.

    >>> replica_names(2)
    ['r0', 'r1']
    """
    return [f"r{number}" for number in range(count)]


def replica_folder(home: Path, job: str, replica: str) -> Path:
    """Everything of one replica."""
    return job_folder(home, job) / "replicas" / replica
