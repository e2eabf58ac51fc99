"""What the programs for Flink share: the source's table, and the publishing.

Results go through Flink's own `FileSink`, a file per checkpoint and task, which becomes visible when the checkpoint is
complete: exactly-once. Rows are JSON, written as a change log (`+I[...]`, `-U[...]`, `+U[...]`) where results change.
"""

import os

from pyflink.common import Encoder
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from pyflink.table import StreamTableEnvironment, Table

FOLDER = f"file://{os.environ['BENCH_FOLDER']}"
BOUNDED = os.environ.get("BENCH_BOUNDED") == "1"
ENVIRONMENT = StreamExecutionEnvironment.get_execution_environment()
LOOK_INTERVAL = "10 ms"
EVENT = "seq BIGINT, sent_us BIGINT, at_ms BIGINT, key STRING, amount BIGINT"


def tables() -> StreamTableEnvironment:
    """The environment, as the cluster is configured."""
    t = StreamTableEnvironment.create(ENVIRONMENT)
    t.get_config().set_local_timezone("UTC")
    return t


def event_time(out_of_order: str) -> str:
    """The columns of a table that make `at_ms` its event time; so many seconds may be out of order."""
    return f"ts AS TO_TIMESTAMP_LTZ(at_ms, 3), WATERMARK FOR ts AS ts - INTERVAL '{out_of_order}' SECOND"


def read(t: StreamTableEnvironment, source: str, columns: str) -> None:
    """Declare a source of the benchmark, a watched folder, as a table.

    Flink takes the files that it finds in one look in any order. So of much input at once it is shown one after the
    other, in a folder beside.
    """
    folder = f"{FOLDER}/work/input/{source}" if BOUNDED else f"{FOLDER}/input/{source}"
    t.execute_sql(
        f"CREATE TABLE `{source}` ({columns}) WITH ('connector' = 'filesystem', 'path' = '{folder}', "
        f"'source.monitor-interval' = '{LOOK_INTERVAL}', "
        "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"
    )


def publish(t: StreamTableEnvironment, results: Table) -> None:
    """Write the one column of the results, JSON, as it changes; and run the job."""
    write(t.to_changelog_stream(results))


def write(rows: DataStream) -> None:
    """Write rows, and run the job."""
    sink = (
        FileSink.for_row_format(f"{FOLDER}/output", Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    rows.sink_to(sink)
    ENVIRONMENT.execute(os.environ["BENCH_WORKLOAD"])


def window_start_ms() -> str:
    """When a window began, in milliseconds; the session's zone is UTC."""
    return "1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT)"
