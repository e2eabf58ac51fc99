"""What the service answers and takes, as typed models: the same for REST, its document, the client and the commands.

Times are microseconds since 1970 (``..._us``), as everywhere in Lockstep.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lockstep.control.operations.model import Kind, State
from lockstep.control.operations.rolling import KEEP_S
from lockstep.control.operations.verbs import PARTITIONS_MAX, REPLICAS_MAX, TIMEOUT_S


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(_Answer):
    """What went wrong: RFC 9457, with Lockstep's code and what to try."""

    type: str
    code: str
    title: str
    status: int
    detail: str = ""
    hint: str = ""


class Replica(_Answer):
    """One replica."""

    replica: str
    state: str
    alive: bool
    epoch: int
    """The newest epoch it has committed, -1 if none."""
    lag_epochs: int
    within_lead: bool
    """Whether losing the others would not show."""
    epoch_ms: float
    restarts: int
    pid: int
    host: str
    """Empty if the job lives on one host."""
    note: str
    starting_s: float | None = None
    working_on: int | None = None
    under_way_s: float = 0.0
    executors: int | None = None
    executors_lost: int = 0
    environment: str = ""
    """What it runs in: the versions of Python, Spark, Arrow, Java, its time zones and Lockstep, and where."""


class JobSummary(_Answer):
    """A job in a list."""

    job: str
    state: str
    reason: str
    wanted: bool
    """Whether it is to run."""
    active: bool
    """Whether epochs are sealed: not after `deactivate`."""
    coordinator: str | None
    """Who carries out operations now."""
    replicas_wanted: int
    head_epoch: int
    published_epoch: int
    rows_per_s: float
    generation: int


class JobDescription(JobSummary):
    """All about a job."""

    replicas: list[Replica]
    latency_ms: dict[str, float]
    """p50, p99, max and count over the last minute."""
    latency_all_ms: dict[str, float]
    """p50, p90, p99, max and count since the job began."""
    spares: list[dict[str, Any]]
    divergences: int
    dead_letters: int
    held_back_us: dict[str, dict[str, int]]
    operation: Operation | None
    """The one under way."""


class Spec(_Answer):
    """What is to run. ``generation`` counts the changes that replace replicas."""

    generation: int
    results_of: int
    wanted: bool
    code_hash: str
    job_file: str
    replicas: int
    partitions: int
    stage_partitions: dict[str, int]
    master: str
    settings: dict[str, Any]


class SpecChange(_Question):
    """What of the spec is to change; the rest stays. It becomes an operation."""

    replicas: int | None = Field(default=None, ge=1, le=REPLICAS_MAX)
    partitions: int | None = Field(default=None, ge=1, le=PARTITIONS_MAX)
    stage: int | None = Field(default=None, ge=0, le=1000)
    cores: int | None = Field(default=None, ge=1, le=1024)


class OperationStep(_Answer):
    """One thing that was done."""

    name: str
    at_us: int
    text: str = ""


class Operation(_Answer):
    """A change to a job: asked for once, done or rolled back by its deadline."""

    number: int
    kind: Kind
    arguments: dict[str, Any]
    asked_by: str
    asked_us: int
    deadline_us: int
    at_deadline: Literal["rollback", "commit"]
    state: State
    open: bool
    phase: str
    wish: str
    steps: list[OperationStep]
    error: str
    ended_us: int


class OperationRequest(_Question):
    """An operation that is asked for. Which of the arguments count depends on ``kind``."""

    kind: Literal["rescale", "restart", "move", "activate", "deactivate"]
    replicas: int | None = Field(default=None, ge=1, le=REPLICAS_MAX)
    partitions: int | None = Field(default=None, ge=1, le=PARTITIONS_MAX)
    stage: int | None = Field(default=None, ge=0, le=1000)
    cores: int | None = Field(default=None, ge=1, le=1024)
    replica: str = Field(default="", max_length=20)
    host: str = Field(default="", max_length=253)
    timeout_s: float = Field(default=TIMEOUT_S, gt=0, le=86_400)
    at_deadline: Literal["rollback", "commit"] = "rollback"


class UpgradeRequest(_Question):
    """How a running job goes on with other code."""

    same_results: bool = False
    """Whether results stay as they are: then they are compared, and any difference rolls the upgrade back."""
    keep_s: float = Field(default=KEEP_S, ge=0, le=86_400)
    """How long after the switch one replica with the old results stays, so that it can be taken back."""
    timeout_s: float = Field(default=TIMEOUT_S, gt=0, le=86_400)
    at_deadline: Literal["rollback", "commit"] = "rollback"


class EnvironmentRequest(_Question):
    """How a running job goes on in another environment."""

    timeout_s: float = Field(default=TIMEOUT_S, gt=0, le=86_400)
    at_deadline: Literal["rollback", "commit"] = "rollback"


class DifferenceSample(_Answer):
    """One difference, in words."""

    epoch: int
    sink: str
    text: str


class Difference(_Answer):
    """New results beside those that were published, while an upgrade computes them in the shadow."""

    operation: int | None
    """The upgrade under way, or the last one."""
    replica: str
    first_epoch: int
    last_epoch: int
    epochs: int
    differing: int
    samples: list[DifferenceSample]


class Asked(_Answer):
    """A job was told to stop, or to start."""

    job: str
    wanted: bool
    coordinator: str | None


class Epoch(_Answer):
    """One epoch: as it was sealed, published and compared."""

    epoch: int
    epoch_time_us: int
    records: int
    cut: dict[str, dict[str, int]]
    marks_us: dict[str, int | None]
    sealed_by: str
    generation: int
    published_by: str | None
    published_us: int | None
    latency_ms: float | None
    digests_equal: bool | None
    """None while fewer than two replicas have reported."""


class Epochs(_Answer):
    """Some epochs, newest first."""

    epochs: list[Epoch]
    before: int | None
    """For the next page: ``?before=``; None if there are no older ones."""


class Event(_Answer):
    """Something that happened."""

    id: int
    at_us: int
    kind: str
    replica: str
    text: str


class Events(_Answer):
    """Some events, oldest first."""

    events: list[Event]
    after: int
    """For the next page: ``?after=``."""


class Stage(_Answer):
    """What runs as one Spark query."""

    stage: int
    output_mode: str
    steps: list[str]
    sinks: list[str]
    reads: list[str]
    partitions: int


class PlacedReplica(_Answer):
    """Where a replica computes."""

    replica: str
    state: str
    host: str
    pid: int
    generation: int


class PhysicalPlan(_Answer):
    """Where and in how many parts the job is computed."""

    master: str
    stages: list[Stage]
    replicas: list[PlacedReplica]


class Plan(_Answer):
    """The job's graph, and where it is computed."""

    logical: dict[str, Any]
    """As `lockstep plan --json` has it."""
    text: str
    """As `lockstep plan` draws it."""
    physical: PhysicalPlan


class Savepoint(_Answer):
    """The state of a job, kept under a name on this host."""

    name: str
    id: str
    epoch: int
    taken_us: int
    bytes: int
    pinned: bool
    """Whether what comes after it is kept, too."""
    folder: str


class SavepointRequest(_Question):
    """A savepoint that is asked for."""

    name: str = Field(min_length=1, max_length=100)
    pinned: bool = True


class StateRows(_Answer):
    """What a step keeps, after an epoch."""

    job: str
    step: str
    epoch: int
    columns: list[str]
    rows: list[dict[str, Any]]
    """Times in ISO 8601, decimals as text, bytes in hexadecimal."""
    more: bool
    """Whether there were more rows than were asked for."""


class Log(_Answer):
    """The end of a log."""

    name: str
    lines: list[str]
    truncated: bool
    """Whether there is more before it."""


class Ingested(_Answer):
    """Records that are on disk."""

    journal: str
    records: int
    positions: dict[str, tuple[int, int]]
    """By partition: the first position, and one past the last."""
    repeated: bool = False
    """Whether the same records were here before, under the same key: then none was appended now."""


class Submitted(_Answer):
    """A job that was taken."""

    job: str
    bundle: str
    """The sha256 of what was sent."""


class StoreMember(_Answer):
    """A server of the coordination store, as it answered itself."""

    address: str
    mode: str
    """leader, follower, observer or standalone; empty if it does not serve."""
    version: str
    took_ms: float
    trouble: str


class StoreState(_Answer):
    """Where ledgers, leases and facts are kept, and whether that answers."""

    kind: Literal["sqlite", "zookeeper"]
    address: str
    answers: bool
    took_ms: float
    """How long one read of it took."""
    trouble: str
    members: list[StoreMember]
    """Empty where the store is a file."""


class Coordinated(_Answer):
    """Who coordinates a job."""

    job: str
    wanted: bool
    coordinator: str | None
    """The holder of the lease; None if nobody has it."""
    term: int
    """How often somebody has begun to coordinate it."""
    trouble: str = ""


class HostRoom(_Answer):
    """A host, and what it has free."""

    host: str
    address: str
    """Of its agent; empty for the host of the service where no agent is announced."""
    version: str
    cores: int
    cores_free: int
    """Without those that replicas there compute with; below 0 if they share some."""
    memory_bytes: int
    memory_free_bytes: int | None
    """As its agent said last, to a sixteenth of all."""
    replicas: list[str]
    """JOB/REPLICA."""
    spares: int


class ReplicaExecutors(_Answer):
    """The executors of a replica, as it reports them."""

    job: str
    replica: str
    master: str
    executors: int
    lost: int


class Cluster(_Answer):
    """What the jobs of a project run on."""

    store: StoreState
    coordinators: list[Coordinated]
    hosts: list[HostRoom]
    executors: list[ReplicaExecutors]
    """Of replicas whose master is not local."""


class Ready(_Answer):
    """Whether the service can answer."""

    status: str
    jobs: int


Jobs = Annotated[list[JobSummary], Field(description="All jobs, by name.")]
JobDescription.model_rebuild()
