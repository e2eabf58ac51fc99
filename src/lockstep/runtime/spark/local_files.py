"""Files that Spark's JVM makes on a local disk, without starting a process for each of them.

Every epoch Spark makes three files and their checksums: its note of the epoch, the change of state, the commit. Hadoop
sets the permissions of each with its native library or, where that is missing, as it is in Spark's Python package, by
starting ``chmod``: six processes an epoch, about 15 ms. Java can do the same with one call. This file system is
Hadoop's own but for that call, compiled by the compiler that Spark brings for its queries.
"""

from __future__ import annotations

import sys
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_NAME = "LockstepLocalFiles"
_JAVA = f"""
public class {_NAME} extends org.apache.hadoop.fs.RawLocalFileSystem {{
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission)
            throws java.io.IOException {{
        java.nio.file.Files.setPosixFilePermissions(
            pathToFile(path).toPath(),
            java.nio.file.attribute.PosixFilePermissions.fromString(permission.toString()));
    }}
}}
"""


def without_processes(session: SparkSession) -> None:
    """From now on this JVM sets permissions of local files itself.

    It reaches into Hadoop's cache of file systems, which no public call does. Where that fails, files are made as ever.
    """
    try:
        _put_in_cache(session, _file_system(session))
    except (Py4JError, TypeError) as error:
        print(f"each file of a checkpoint starts a process: {error}", file=sys.stderr, flush=True)


def _file_system(session: SparkSession) -> Any:
    jvm: Any = session._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_JAVA)
    made = compiler.getClassLoader().loadClass(_NAME)
    raw = made.getDeclaredConstructor(_array(session, jvm.java.lang.Class)).newInstance(
        _array(session, jvm.java.lang.Object)
    )
    # Hadoop's usual layer above it writes and checks the checksums.
    return jvm.org.apache.hadoop.fs.LocalFileSystem(raw)


def _put_in_cache(session: SparkSession, files: Any) -> None:
    jvm: Any = session._jvm
    configuration = session.sparkContext._jsc.hadoopConfiguration()
    uri = jvm.java.net.URI("file:///")
    files.initialize(uri, configuration)
    system = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
    kinds = _array(session, jvm.java.lang.Class, uri.getClass(), configuration.getClass(), system)
    put = system.getDeclaredMethod("addFileSystemForTesting", kinds)
    put.setAccessible(True)
    put.invoke(None, _array(session, jvm.java.lang.Object, uri, configuration, files))


def _array(session: SparkSession, kind: Any, *values: Any) -> Any:
    made = session.sparkContext._gateway.new_array(kind, len(values))
    for index, value in enumerate(values):
        made[index] = value
    return made
