"""HDFS over HTTP (WebHDFS): no JVM, no library. A manifest is written aside and renamed, which never replaces.

``hdfs://name:8020`` names a port for Java's clients. The one for HTTP is in the cluster's settings, which Hadoop's
programs find by HADOOP_CONF_DIR, and so do we; without them it is 9870. ``webhdfs://name:9870`` says it itself.
"""

from __future__ import annotations

import errno
import getpass
import http.client
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from lockstep.connect.remote.paths import away, refused
from lockstep.errors import ConnectError

ANSWER_S = 30.0
AWAY_S = 60.0
"""How long a request is repeated while no name node answers: a standby takes over within that time."""
_AGAIN_S = 0.2
_HTTP_PORT = "9870"
_PASSING = frozenset({"StandbyException", "SafeModeException", "RetriableException", "RetryStartFileException"})
_FULL = frozenset({"DSQuotaExceededException", "NSQuotaExceededException", "QuotaExceededException"})


class _Answer(NamedTuple):
    status: int
    body: bytes


class _Refusal(Exception):
    """An answer that says no: which of Java's exceptions, and its words."""

    def __init__(self, answer: _Answer) -> None:
        told: Mapping[str, Any] = {}
        if answer.body[:1] == b"{":
            told = json.loads(answer.body).get("RemoteException", {})
        self.kind = str(told.get("exception", ""))
        self.status = answer.status
        words = str(told.get("message", "")).splitlines()
        super().__init__(f"{self.kind or f'HTTP {answer.status}'}: {words[0] if words else ''}".rstrip(": ."))


class Hdfs:
    """One cluster."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._nodes = http_addresses(address)
        self._user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder."""
        return [str(one["pathSuffix"]) for one in self._listed(folder)]

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        try:
            said = self._ask("GET", folder, "LISTSTATUS")
        except FileNotFoundError:
            return []
        # A file lists itself, without a name.
        return [one for one in said["FileStatuses"]["FileStatus"] if one["pathSuffix"]]

    def is_there(self, key: str) -> bool:
        """Whether there is such a file."""
        try:
            return bool(self._ask("GET", key, "GETFILESTATUS")["FileStatus"]["type"] == "FILE")
        except FileNotFoundError:
            return False

    def read(self, key: str, into: BinaryIO) -> None:
        """Copy a file's content, from the data nodes that hold it."""
        begin = into.tell()

        def copied(node: str) -> None:
            into.seek(begin)
            into.truncate()
            where = self._led(node, "GET", key, "OPEN")
            _exchange("GET", where, into=into)

        self._patiently(key, copied)

    def write(self, key: str, content: BinaryIO) -> None:
        """Make a file; its last block is on every data node of the pipeline when this returns."""

        def sent(node: str) -> None:
            content.seek(0)
            where = self._led(node, "PUT", key, "CREATE", overwrite="true")
            _exchange("PUT", where, content)

        self._patiently(key, sent)

    def put_if_absent(self, key: str, temporary: str, data: bytes) -> bool:
        """Make a file unless there is one: HDFS renames in one act, and only to a name that is free.

        A file that was only created would be seen before its content is there. If the answer to a rename was lost, the
        next one finds nothing to rename: then the content says whose the file is.
        """
        self.write(temporary, BytesIO(data))
        try:
            if self._ask("PUT", temporary, "RENAME", destination=f"/{key}")["boolean"]:
                return True
            there = BytesIO()
            with suppress(FileNotFoundError):  # compacted meanwhile: it was another's
                self.read(key, there)
            return there.getvalue() == data
        except FileNotFoundError:
            return False  # there was one, and it is gone again: it was another's
        finally:
            self.remove(temporary)

    def remove(self, key: str) -> None:
        """Remove a file; an empty folder is left."""
        self._ask("DELETE", key, "DELETE", recursive="false")

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of each file in a folder."""
        return {one["pathSuffix"]: int(one["length"]) for one in self._listed(folder) if one["type"] == "FILE"}

    def files(self, folder: str) -> list[str]:
        """Every file below a folder, one listing for each folder."""
        found: list[str] = []
        waiting = [""]
        while waiting:
            inside = waiting.pop()
            for one in self._listed(f"{folder}/{inside}".rstrip("/")):
                name = f"{inside}/{one['pathSuffix']}".lstrip("/")
                (found if one["type"] == "FILE" else waiting).append(name)
        return found

    def replace(self, key: str, temporary: str, data: bytes) -> None:
        """Written aside, then renamed over what is there.

        If the answer to the rename was lost, the next attempt finds nothing to rename: then it is done.
        """
        self.write(temporary, BytesIO(data))
        with suppress(FileNotFoundError):
            self._ask("PUT", temporary, "RENAME", destination=f"/{key}", renameoptions="OVERWRITE")

    def copy(self, key: str, target: str) -> None:
        """HDFS copies nothing by itself: the bytes pass through this host's temporary folder."""
        with tempfile.TemporaryFile() as content:
            self.read(key, content)
            self.write(target, content)

    def move_folder(self, folder: str, target: str) -> bool:
        """HDFS renames a folder in one act, whatever is in it; whoever writes by its old name does not find it."""
        self._ask("PUT", target.rpartition("/")[0], "MKDIRS")
        if not self._ask("PUT", folder, "RENAME", destination=f"/{target}")["boolean"]:
            # It is told twice if the answer to the first attempt was lost: then it is done.
            self._ask("GET", target, "GETFILESTATUS")
        return True

    def remove_folder(self, folder: str) -> None:
        """Remove it with all that is in it."""
        self._ask("DELETE", folder, "DELETE", recursive="true")

    def _ask(self, method: str, key: str, operation: str, **options: str) -> Any:
        answers: list[bytes] = []

        def asked(node: str) -> None:
            answers.append(_exchange(method, self._url(node, key, operation, options)))

        self._patiently(key, asked)
        return json.loads(answers[-1] or b"{}")

    def _led(self, node: str, method: str, key: str, operation: str, **options: str) -> str:
        """Where the content is read or written: the name node names a data node."""
        url = self._url(node, key, operation, {**options, "noredirect": "true"})
        return str(json.loads(_exchange(method, url))["Location"])

    def _url(self, node: str, key: str, operation: str, options: Mapping[str, str]) -> str:
        query = urlencode({"op": operation, "user.name": self._user, **options})
        return f"http://{node}/webhdfs/v1/{quote(key)}?{query}"

    def _patiently(self, key: str, act: Any) -> None:
        """Do it at whichever name node leads; again for a while if none does, or if a data node does not answer."""
        place = f"{self._address}/{key}"
        deadline_s = time.monotonic() + AWAY_S
        while True:
            for node in self._nodes:
                try:
                    act(node)
                except _Refusal as refusal:
                    if refusal.kind not in _PASSING and refusal.status < 500:
                        raise _explained(refusal, place) from refusal
                    told: Exception = refusal
                except (OSError, http.client.HTTPException) as error:
                    told = error
                else:
                    return
            if time.monotonic() > deadline_s:
                raise away(place, f"{', '.join(self._nodes)}: {told or type(told).__name__}") from told
            time.sleep(_AGAIN_S)


def _explained(refusal: _Refusal, place: str) -> Exception:
    if refusal.kind == "FileNotFoundException":
        return FileNotFoundError(errno.ENOENT, "there is no such file", place)
    if refusal.kind in _FULL:
        return ConnectError(
            "LS0508", f"no space left to write {place}", why=f"{refusal}. Nothing of this epoch became visible."
        )
    if refusal.status == 401:
        hint = "Lockstep's own client logs in by name alone: mount HDFS, or let the job write elsewhere."
        return refused(place, "the cluster wants Kerberos", hint)
    return refused(place, refusal, "HADOOP_USER_NAME says as whom Lockstep comes; check what it may do there.")


def _exchange(method: str, url: str, content: BinaryIO | None = None, into: BinaryIO | None = None) -> bytes:
    """One request; the answer's body, or nothing if it went ``into`` a file."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_S)
    try:
        size = {"Content-Length": str(_size(content))}
        headers = {"Content-Type": "application/octet-stream", **size} if content is not None else {}
        # A name node leaves letters beyond ASCII as they are where it names a data node.
        path = quote(parts.path, safe="/%+:@!$&'()*,;=~")
        connection.request(method, f"{path}?{parts.query}", content, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise _Refusal(_Answer(answer.status, answer.read()))
        if into is None:
            return answer.read()
        shutil.copyfileobj(answer, into)
        if answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
        return b""
    finally:
        connection.close()


def _size(content: BinaryIO | None) -> int:
    if content is None:
        return 0
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    return size


def http_addresses(address: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Where the name nodes of a cluster answer HTTP.

    >>> http_addresses("webhdfs://one:9870"), http_addresses("hdfs://one:8020", {})
    (['one:9870'], ['one:9870'])
    """
    parts = urlsplit(address)
    if parts.scheme == "webhdfs":
        return [parts.netloc]
    settings = _settings(os.environ if environment is None else environment)
    cluster = parts.netloc or urlsplit(settings.get("fs.defaultFS", "")).netloc
    if not cluster:
        raise refused(
            address,
            "it names no name node, and there is no fs.defaultFS in HADOOP_CONF_DIR",
            "write hdfs://HOST:PORT/PATH, or set HADOOP_CONF_DIR.",
        )
    members = [one.strip() for one in settings.get(f"dfs.ha.namenodes.{cluster}", "").split(",") if one.strip()]
    if members:
        keys = [f"dfs.namenode.http-address.{cluster}.{one}" for one in members]
        if missing := [key for key in keys if key not in settings]:
            raise refused(
                address,
                f"hdfs-site.xml in HADOOP_CONF_DIR does not say {missing[0]}",
                "add where each name node answers HTTP, or write webhdfs://HOST:PORT/PATH.",
            )
        return [settings[key] for key in keys]
    port = settings.get("dfs.namenode.http-address", "").rpartition(":")[2]
    return [f"{cluster.partition(':')[0]}:{port or _HTTP_PORT}"]


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    folder = environment.get("HADOOP_CONF_DIR")
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        path = Path(folder or "", name)
        if folder and path.is_file():
            for one in ElementTree.parse(path).iter("property"):  # noqa: S314 - the user's own settings
                found[one.findtext("name", "").strip()] = one.findtext("value", "").strip()
    return found
