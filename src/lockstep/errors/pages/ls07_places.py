"""Pages of the codes LS07xx: checkpoints at addresses."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0700": Page(
        "The job's checkpoints are elsewhere",
        """\
Where a job keeps its checkpoints (`checkpoints` in lockstep.toml) is settled by its first start: its state
is there. A setting that names another place would have every replica begin with nothing, and nothing to
begin from. Set it as it was; the message says what that is. To move a job, give it another name and its
sinks other places, and let it read its input from the beginning.""",
    ),
    "LS0701": Page(
        "Checkpoints cannot be at this address",
        """\
`checkpoints` in lockstep.toml is an address that Spark's own client and Lockstep's both understand:

  checkpoints = "hdfs://namenode:8020/lockstep"    HDFS, or hdfs://NAMESERVICE/lockstep with HADOOP_CONF_DIR
  checkpoints = "s3a://bucket/lockstep"            S3 and what speaks like it
  checkpoints = "file:///mnt/shared/lockstep"      a folder that all hosts have at the same path

Folders have plain names (letters, digits, ".", "_", "-"): Spark's reader of state does not find others.
Without the setting each replica has its checkpoints in its folder on its host, which is quickest and needs
nobody; executors of other machines then need a file system that they share with the driver.""",
    ),
    "LS0702": Page(
        "Spark and Lockstep do not share the checkpoints' address",
        """\
Spark writes checkpoints with Hadoop's client; Lockstep reads, copies and checks them with its own, over
HTTP. Before a replica takes its checkpoint, Spark writes a small file there and Lockstep reads it; with a
master that is not local, every executor writes one too. One of them could not, or it did not arrive.

- HDFS: `HADOOP_CONF_DIR` has to name the cluster's settings for `lockstep run`, every agent and the
  cluster's executors; `HADOOP_USER_NAME` says as whom both clients come, and the folder's owner has to let
  that user write. Lockstep needs WebHDFS (on unless it was switched off), without Kerberos.
- S3: Spark reads its `spark.hadoop.fs.s3a.*` settings and the AWS variables for credentials, Lockstep
  whatever boto3 finds. `AWS_ENDPOINT_URL` is handed on to Spark. Both have to mean the same bucket.

If the system does not answer for the moment, the replica is started again after a pause.""",
    ),
    "LS0703": Page(
        "Two starts of a replica met at its checkpoint",
        """\
Each start of a replica has a folder of its own at the checkpoints' address. A new start takes its
predecessor's folder over by giving it its own name. Here another start did so while this one was reading
it: it was believed dead and was not, on a host that was cut off, say. Nothing is lost. The supervisor
starts the replica again if it is the one that counts.""",
    ),
    "LS0705": Page(
        "Not with checkpoints at an address",
        """\
Another number of partitions, savepoints and questions about state work with the files of a checkpoint on the
disk of a host. A job whose checkpoints are at an `hdfs:` or `s3a:` address does without them; everything else
is the same for it.

Checkpoints at an address are for executors that share no file system with the driver. Where each replica has
a local master, leave the setting out.""",
    ),
    "LS0704": Page(
        "Spark has no client for the checkpoints' address",
        """\
PySpark comes with a client for HDFS, and with none for S3. Checkpoints at an s3a: address need Hadoop's
hadoop-aws in exactly the version of the hadoop-client-api among PySpark's jars, and the AWS SDK that it was
made for. On each host that runs replicas:

  lockstep services install s3a

fetches them with Maven's client (14 MB, into ~/.cache/lockstep), and replicas find them there; Spark brings
them to its executors. Or name the ones that you have:

  [spark]
  "spark.jars" = "/jars/hadoop-aws-3.5.0.jar,/jars/bundle-2.35.4.jar,/jars/analyticsaccelerator-s3-1.3.1.jar"

docs/guide/places.md has the whole of it. Lockstep's own client needs `pip install "lockstep[s3]"`.""",
    ),
}
