"""Pages of the codes LS055x: sinks on HDFS and in S3."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0551": Page(
        "HDFS or S3 does not answer",
        """A sink on hdfs: or s3a: could not be reached for about a minute; the message has the last words of
the client. The replica starts again and goes on where it was: an epoch whose manifest is there is
found published, one whose manifest is not is published by the next attempt.

If it does not pass, check the address. For HDFS Lockstep speaks HTTP (WebHDFS) with the name node and
the data nodes: dfs.webhdfs.enabled must be true (it is by default), and their HTTP ports must be open
to every host of the job. The name node's is read from hdfs-site.xml in HADOOP_CONF_DIR, else it is
9870; webhdfs://HOST:PORT/... names it outright. Another S3 than that of AWS is named by
AWS_ENDPOINT_URL.""",
    ),
    "LS0552": Page(
        "the client of S3 is not installed",
        """ls.files("s3a://...") writes through boto3, which is not installed with Lockstep itself:

    pip install "lockstep[s3]"

on every host that runs a replica, and on those from which output is read.""",
    ),
    "LS0553": Page(
        "a store cannot create without replacing",
        """Exactly once rests on one act: a manifest is created only if there is none, and of two replicas that
try, one is told that it came second. HDFS has it (a rename never replaces), and so has S3 (a put with
the condition If-None-Match: *). Some stores that speak like S3 do not know the condition, or ignore it:
both replicas would then believe that they had published the epoch.

So it is tried when a sink is opened: one small file is put, then another one under the same name. The
store that the message names did not refuse the second. Use S3 itself, a version of the store that
keeps If-None-Match, HDFS, or a folder that all hosts see.""",
    ),
    "LS0554": Page(
        "HDFS or S3 refuses this user",
        """The system answers, and says no: credentials are missing or wrong, the bucket is not there, or this
user may not read, list, write or delete below the sink's folder. The message has its words.

S3: credentials come from where every program of AWS finds them (AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, ~/.aws, a role of the machine), on every host of the job; executors on other
machines need them too. They may s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket.

HDFS: Lockstep comes as HADOOP_USER_NAME, else as the user of the process. Clusters that want Kerberos
are not supported.""",
    ),
}
