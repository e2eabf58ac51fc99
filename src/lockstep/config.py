"""Settings of a run: `lockstep.toml` in the project folder, then the job's, then the command line's; the last wins."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lockstep.credentials import hide_secrets
from lockstep.durations import duration_us
from lockstep.errors import EnvironmentError_

CONFIG_FILE = "lockstep.toml"
STORE_FOLDER = ".lockstep"
PARTITIONS = "spark.sql.shuffle.partitions"
"""Spark's setting that says in how many partitions a query keeps its state."""


def _seconds(value: object) -> object:
    return duration_us(value) / 1e6 if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
"""A number of seconds, or a duration as people write it ("200 ms")."""
BootShare = Literal["idle", "gentle", "duty"]
PolicyMode = Literal["off", "advise", "auto"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunSettings(_Strict):
    """How a job runs. Every limit has a unit and a default that suits a laptop."""

    replicas: int = Field(default=2, ge=1, le=16)
    """How many replicas compute every epoch."""
    order: Literal["agreed", "derived"] = "agreed"
    """How replicas come to the same epochs: whoever is ready first seals one in the store (`agreed`), or each derives
    them from the stamps of Kafka's brokers (`derived`), and no epoch waits for the store. Fixed by a job's first start.
    """
    buckets: int = Field(default=64, ge=1, le=1024)
    """Into how many parts the keys of a step with Python state are divided: no step computes in more partitions than
    this. Each costs every epoch a little. Fixed by a job's first start: its state is laid out by it."""
    epoch_interval_s: Seconds = 0.1
    """Shortest time between two seals; pacing stretches it to 1.3 times the slowest replica's epoch.

    With `order = "derived"` the time between two epochs' bounds, as it was at the job's first start; never stretched.
    """
    heartbeat_interval_s: Seconds = 1.0
    """Longest time between two seals, data or not: event time and idleness need epochs to move on."""
    until_done: bool = False
    """Whether to process all the input there is, bring event time to its end, and end."""
    available_now: bool = False
    """Whether to process what is there when the run begins, and end. Event time stays where the records brought it, and
    windows stay open: the next run goes on."""
    epoch_target_s: Seconds = 1.0
    """How long an epoch should take at most; the record limit per epoch adapts to it."""
    epoch_target_behind_s: Seconds = 2.0
    """The same while records wait longer than this anyway: larger epochs cost less a record, so a backlog ends sooner.

    Shorter than the lag timeout, or replicas that are busy with it would leave the set."""
    records_per_epoch_min: int = Field(default=100, ge=1)
    """The record limit adapts, but not below this."""
    records_per_epoch_start: int = Field(default=1_000, ge=1)
    """The record limit before anything was measured; it grows fourfold from one epoch to the next while that is quick.

    After a restart the last epochs count as measured."""
    records_per_epoch_max: int = Field(default=2_000_000, ge=1)
    """Nor above this."""
    max_ahead_s: Seconds = 86_400.0
    """How far a source may be ahead in event time of another whose records it meets by time (in a join, or in a window
    over a union) while that one has records to read. Whoever is further ahead waits, so that state stays small."""
    stage_partitions: Mapping[str, int] = Field(default_factory=dict)
    """For single stages, by number ("2"), in how many partitions they keep their state, where that is another number
    than `spark.sql.shuffle.partitions` says for all. `lockstep rescale --stage` sets it."""
    lead_epochs_max: int = Field(default=50, ge=1)
    """Nobody seals further than this beyond the slowest replica in the set."""
    lag_timeout_s: Seconds = 3.0
    """A replica without progress for this long leaves the set, and rejoins when it has caught up.

    Shorter than the lead lasts (50 epochs at 0.1 s are 5 s): a replica that hangs must not stop the others.
    """
    seed_beyond_epochs: int = Field(default=5, ge=0)
    """A replica further behind than this takes a peer's snapshot instead of computing its way forward."""
    hang_timeout_s: Seconds = 60.0
    """A replica that makes no progress for this long although an epoch is sealed is replaced."""
    start_timeout_s: Seconds = 180.0
    """A replica that has not reached its first epoch by then is replaced."""
    restarts_max: int = Field(default=8, ge=0)
    """Restarts of one replica within ``restart_window_s`` before it is given up."""
    restart_window_s: Seconds = 600.0
    """How far back restarts are counted."""
    restart_backoff_s: Seconds = 0.5
    """Wait before the second restart in a row; doubles up to ``restart_backoff_max_s``."""
    restart_backoff_max_s: Seconds = 30.0
    """The longest wait between two restarts."""
    spares: int = Field(default=1, ge=0, le=4)
    """Processes that have booted and wait, so that a replica that died is back in seconds; 0 for none.

    One costs memory (about that of a replica) and next to no processor time. There is none in a run until done, nor on
    a master that is not local, where it would hold executors.
    """
    boot_share: BootShare = "duty"
    """What a process that comes back beside replicas that publish gets of the processor: idle time, or a share.

    In idle time, one that gets less than a quarter of a core has a gentle share all the same, and a replica then its
    full one. ``duty`` is idle time, of which a spare, for which nobody waits, uses a quarter: a busy core slows the
    others down. With ``idle`` it is ready sooner.
    """
    on_divergence: Literal["stop", "continue"] = "stop"
    """What to do if two replicas computed different rows and no third can tell who is right: stop the job, or go on
    with the copy that was published."""
    state_digest_every_epochs: int = Field(default=500, ge=0)
    """After so many epochs replicas compare their state, beside the epochs; and where one has joined. A replica for
    which that takes more than a small share of its time does it after twice as many, or four times. 0: never."""
    stop_timeout_s: Seconds = 30.0
    """How long a graceful stop may take before it becomes a hard one."""
    spread_after_s: Seconds = 30.0
    """If replicas have to share a host, how long another host must be there before one of them moves to it."""
    orphan_timeout_s: Seconds = 30.0
    """How long replicas go on while nobody supervises them (`lockstep run` was killed). If it is started again before,
    it goes on with them as they are; otherwise they finish their epoch and end."""
    retention_epochs_min: int = Field(default=200, ge=10)
    """Epochs kept even if nobody needs them: for `lockstep ledger` and for looking back."""
    compact_sinks: bool = True
    """Whether old epochs of files and Delta sinks are merged into few files by themselves, beside the running job."""
    compact_keep_epochs: int = Field(default=100, ge=1)
    """The newest epochs that keep files of their own; a few hundred older ones may be waiting to be merged."""
    dead_letters_max: int = Field(default=10_000, ge=0)
    """Dead letters (records that could not be read, or that a function could not take) that may wait for somebody; with
    more the job stops before it publishes the epoch. Those put back or dismissed do not count. 0: one is too many."""
    rows_through_driver_max: int = Field(default=20_000, ge=0)
    """Rows of an epoch that may pass through the driver's memory (fewer if they are wide: 64 MB in all).

    Larger ones are staged in files by the executors; an epoch that turns out larger only then is run again that way."""
    traces: str = Field(default="", pattern=r"^(https?://[^\s/]+.*)?$")
    """Where an OpenTelemetry collector takes the spans of epochs over OTLP and HTTP ("http://127.0.0.1:4318"); needs
    `pip install "lockstep[telemetry]"`. No epoch waits for it: what it does not take in time is dropped and counted."""

    @property
    def behind_epochs_max(self) -> int:
        """How far a replica may be behind whoever publishes: the lead, and what a start may leave to catch up with.

        One that is further behind has left the set, and is seeded if it starts again.
        """
        return self.lead_epochs_max + self.seed_beyond_epochs

    @property
    def ends_by_itself(self) -> bool:
        """Whether it is a run that nobody has to stop."""
        return self.until_done or self.available_now

    @model_validator(mode="after")
    def _has_one_end(self) -> RunSettings:
        if self.until_done and self.available_now:
            raise ValueError("until_done brings event time to its end, and available_now does not: only one can be")
        return self


def is_local(master: str) -> bool:
    """Whether tasks run in the replica's own JVM, so that whatever the driver sees they see too.

    >>> is_local("local[2]"), is_local("local-cluster[2,1,1024]"), is_local("spark://h1:7077")
    (True, False, False)
    """
    return master.startswith("local") and not master.startswith("local-cluster")


class SparkSettings(_Strict):
    """What goes to Spark: the master and any ``spark.*`` setting."""

    master: str = "local[1]"
    """Spark's master URL, as each replica uses it: `local[2]` gives each two task threads; `spark://HOST:7077` has them
    run on a cluster, where `spark.cores.max` (else the cluster's cores divided by the replicas) says how many, and
    `spark.driver.host` (else the address by which the master is reached) where executors find the driver."""
    driver_memory: str = "1g"
    """The JVM's heap, per replica and per spare."""
    conf: Mapping[str, str] = Field(default_factory=dict)
    """Any `spark.*` setting; they may also stand in the table directly, as people paste them.

    The values of keys that look like secrets (password, token, access key, ...) are in no log, event or error; those of
    less than six characters are hidden only where settings are shown."""

    def model_post_init(self, context: object, /) -> None:
        """Whoever has read a secret must not tell it."""
        del context
        hide_secrets(self.conf)


class ReplicaSettings(_Strict):
    """Overrides for one replica, by its name ("r0", "r1", ...)."""

    spark: Mapping[str, Any] = Field(default_factory=dict)


class HostSettings(_Strict):
    """How the hosts of a cluster know each other, and how much of the network a seed may take."""

    token_file: str = ""
    """Where this host's token is. Empty: `~/.config/lockstep/token`, where `lockstep token` puts it. The variable
    `LOCKSTEP_TOKEN` stands above both."""
    tls_certificate: str = ""
    """This host's certificate (PEM). With it, its key and the authority, hosts talk over TLS, and each has to show one.
    """
    tls_key: str = ""
    """The key of the certificate."""
    tls_authority: str = ""
    """The certificate of the authority that has signed those of all hosts."""
    seed_bytes_per_s_max: int = Field(default=0, ge=0)
    """How many bytes a second a replica fetches of a peer's snapshot, so that those who publish do not feel it. 0: as
    many as the network carries."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> HostSettings:
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        if any(files) and not all(files):
            raise ValueError("tls_certificate, tls_key and tls_authority are given together, or none of them")
        return self


class PolicySettings(_Strict):
    """What a job decides about its own shape, and what matters to you. `lockstep why` tells what was decided."""

    scaling: PolicyMode = "advise"
    """Whether partitions follow the load: never, as advice in `lockstep why`, or by themselves (`auto`). The same holds
    for moving a replica that is slower than the others."""
    tolerance: PolicyMode = "advise"
    """Whether replicas and spares follow the failures that are seen, so that what you ask below is met. Nothing is
    decided while `max_gap_s` is 0."""
    window_s: Seconds = 60.0
    """How often the job is looked at; what is measured in between counts as one."""
    utilisation: float = Field(default=0.65, gt=0, lt=1)
    """The share of its capacity that a job is sized for: the rest takes bursts, and what waits after a failure."""
    utilisation_max: float = Field(default=0.8, gt=0, lt=1)
    """More than this counts as need. Between the two nothing is changed."""
    windows_up: int = Field(default=2, ge=1)
    """After so many windows of need in a row a job is made larger, in one step to the right size."""
    quiet_s: Seconds = 3600.0
    """A job is made smaller after so long without need, backlog or failure, and by the most that came in that time."""
    scale_downs_per_day: int = Field(default=3, ge=0)
    """How often a day partitions may be taken away: what is not taken away is there when the load is back."""
    partitions_min: int = Field(default=1, ge=1)
    """Never fewer partitions than this."""
    partitions_max: int = Field(default=64, ge=1)
    """Nor more than this, nor more than there are cores for."""
    max_gap_s: Seconds = 0.0
    """How long the output may pause without anybody minding. 0: nothing is asked, and replicas stay as they are."""
    gaps_per_month: float = Field(default=1.0, gt=0)
    """How many longer pauses in 30 days are acceptable. The smallest mode that meets it is taken: one replica, one with
    a warm spare, two, three."""
    replicas_min: int = Field(default=1, ge=1, le=16)
    """Never fewer replicas than this."""
    replicas_max: int = Field(default=3, ge=1, le=16)
    """Nor more than this, whatever the failures are."""
    budget_cores: int = Field(default=0, ge=0)
    """Replicas times partitions stay within it. 0: no limit."""

    @model_validator(mode="after")
    def _limits_are_in_order(self) -> PolicySettings:
        pairs = (("replicas_min", "replicas_max"), ("partitions_min", "partitions_max"))
        for low, high in (*pairs, ("utilisation", "utilisation_max")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} is more than {high}")
        if self.window_s <= 0 or self.window_s > self.quiet_s:
            raise ValueError("window_s is more than 0, and at most quiet_s")
        if 0 < self.budget_cores < self.replicas_min * self.partitions_min:
            raise ValueError("budget_cores is less than replicas_min times partitions_min")
        return self


class EnvironmentSettings(_Strict):
    """`[environments.NAME]`: what `lockstep upgrade --environment NAME` starts replicas with, on every host."""

    python: str = ""
    """The absolute path of its Python; empty: as it is."""
    java: str = ""
    """The absolute path of Java's home; empty: as it is."""


class Settings(_Strict):
    """All of `lockstep.toml`: where things are, and the tables below."""

    store: str = f"sqlite:{STORE_FOLDER}"
    """The address of the job's store (ledger, leases, facts). `sqlite:FOLDER` is embedded, in a folder here;
    `zookeeper://h1:2181,h2:2181,h3:2181/lockstep` is an ensemble that several hosts share."""
    journals: str = ""
    """Where a job keeps its journals between stages and of loops, and its dead letters. Empty: in files of its host.
    `kafka://h1:9092,h2:9092/lockstep` has them in topics whose names begin with `lockstep`, so that replicas on several
    hosts share them; the client's settings stand behind it (`?security.protocol=ssl`), secrets as `env:NAME`. Fixed by
    a job's first start, but for the list of brokers and the client's settings."""
    checkpoints: str = ""
    """Where replicas keep their checkpoints, and executors rows that are too many for the driver. Empty: in folders of
    their hosts. `hdfs://namenode:8020/lockstep` and `s3a://bucket/lockstep` are for executors that share no file system
    with the driver; `file:///mnt/shared/lockstep` is a folder that all hosts have. Fixed by a job's first start."""
    run: RunSettings = RunSettings()
    spark: SparkSettings = SparkSettings()
    replica: Mapping[str, ReplicaSettings] = Field(default_factory=dict)
    hosts: HostSettings = HostSettings()
    policy: PolicySettings = PolicySettings()
    environments: Mapping[str, EnvironmentSettings] = Field(default_factory=dict)
    """Environments that a running job may be brought to, by name: over HTTP no path is taken."""

    def spark_of(self, replica: str) -> SparkSettings:
        """Spark's settings for one replica: the common ones with its own on top."""
        own = self.replica.get(replica)
        if own is None:
            return self.spark
        extra = _spark_table(own.spark)
        conf = {**self.spark.conf, **extra.pop("conf")}
        return SparkSettings.model_validate({**self.spark.model_dump(), **extra, "conf": conf})


def load_settings(
    project: Path,
    job_options: Mapping[str, Any] | None = None,
    run_overrides: Mapping[str, Any] | None = None,
    spark_overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings that hold for a run in ``project``."""
    path = project / CONFIG_FILE
    raw: dict[str, Any] = {}
    if path.exists():
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise EnvironmentError_(
                "LS0005", f"{CONFIG_FILE} does not parse", why=str(error), hint=f"mend {path}."
            ) from None
    raw["run"] = {**raw.get("run", {}), **(job_options or {}), **(run_overrides or {})}
    spark = _spark_table(raw.get("spark", {}))
    conf = {**spark["conf"], **(spark_overrides or {}).get("conf", {})}
    raw["spark"] = {**spark, **(spark_overrides or {}), "conf": conf}
    try:
        settings = Settings.model_validate(raw)
        for replica in settings.replica:
            settings.spark_of(replica)
        return settings
    except ValidationError as error:
        lines = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
        raise EnvironmentError_(
            "LS0006",
            "a setting is not valid",
            why="; ".join(lines),
            hint=f"look at [run], [spark], [hosts], [policy] and [replica.*] in {CONFIG_FILE}, and at the options of "
            "Job(...).",
        ) from None


def _spark_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """``[spark]`` may hold ``spark.*`` keys directly, as people paste them: those go into ``conf``."""
    flat = _flatten(table)
    conf = {key: str(value) for key, value in flat.items() if key.startswith("spark.")}
    rest = {key: value for key, value in table.items() if key in SparkSettings.model_fields and key != "conf"}
    own_conf = {key: str(value) for key, value in _flatten(table.get("conf", {})).items()}
    unknown = set(table) - set(SparkSettings.model_fields) - {"spark"} - {k for k in table if k.startswith("spark.")}
    return {**rest, "conf": {**conf, **own_conf}, **{key: table[key] for key in unknown}}


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(_flatten(value, name + "."))
        else:
            flat[name] = value
    return flat
