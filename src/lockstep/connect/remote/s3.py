"""S3 and what speaks like it. A manifest is put on the condition that there is none: ``If-None-Match: *``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, BinaryIO

from lockstep.connect.remote.paths import away, cannot_create_once, refused
from lockstep.errors import ConnectError

ATTEMPTS = 8
"""Of one request, with pauses of up to 20 s between them: a store may be away for about a minute."""
CONNECT_S, ANSWER_S = 5.0, 60.0
_BLOCK_BYTES = 1 << 20
_GONE = frozenset({"404", "NoSuchKey", "NotFound"})
_TAKEN = frozenset({"412", "PreconditionFailed"})
_UNDER_WAY = frozenset({"409", "ConditionalRequestConflict"})
_NOT_OFFERED = frozenset({"501", "NotImplemented"})
_NOT_ALLOWED = frozenset({"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket"})
_AGAIN_S = 0.2
_REMOVED_AT_ONCE = 1000
_PUTS = 5
"""A put that meets another one of the same name under way is to be tried again, says S3."""


def library() -> ModuleType:
    """boto3, LS0552 if it is not installed."""
    try:
        import boto3
    except ImportError as error:
        raise ConnectError(
            "LS0552",
            "the client of S3 is not installed",
            why=f"a sink in S3 needs the package boto3 ({error}).",
            hint='pip install "lockstep[s3]"',
        ) from error
    module: ModuleType = boto3
    return module


class S3:
    """One bucket. Who we are and where it is come from the environment, as for every program of AWS."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        boto3 = library()
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        self._answered: type[Exception] = ClientError
        self._failed: type[Exception] = BotoCoreError
        retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        # Checksums of our own making are not understood by every store that speaks like S3.
        config = Config(
            retries=retries,
            connect_timeout=CONNECT_S,
            read_timeout=ANSWER_S,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._trouble():
            # A session of its own: the common one must not be used by several threads.
            self._client: Any = boto3.session.Session().client("s3", config=config)

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder."""
        prefix = f"{folder}/" if folder else ""
        found: list[str] = []
        with self._trouble():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                found += [one["Key"] for one in page.get("Contents", ())]
                found += [one["Prefix"] for one in page.get("CommonPrefixes", ())]
        names = [key.removeprefix(prefix).rstrip("/") for key in found]
        return [name for name in names if name]

    def is_there(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            with self._trouble():
                self._client.head_object(Bucket=self._bucket, Key=key)
        except FileNotFoundError:
            return False
        return True

    def read(self, key: str, into: BinaryIO) -> None:
        """Copy an object's content."""
        with self._trouble(key):
            body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
            with body:
                for block in body.iter_chunks(_BLOCK_BYTES):
                    into.write(block)

    def write(self, key: str, content: BinaryIO) -> None:
        """Make an object; a large one is sent in parts, and is there when all are."""
        content.seek(0)
        with self._trouble(key):
            self._client.upload_fileobj(_Unclosed(content), self._bucket, key)

    def put_if_absent(self, key: str, temporary: str, data: bytes) -> bool:  # noqa: ARG002 - an object appears whole
        """Make an object unless there is one.

        If the answer to a put was lost, the client's next attempt finds the object there: then it is ours all the same,
        and its content says so.
        """
        for _ in range(_PUTS):
            try:
                with self._trouble(key):
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*")
                    return True
            except FileExistsError:
                return self._content(key) == data
            except BlockingIOError:
                time.sleep(_AGAIN_S)
        raise away(self._named(key), "other puts of the same name are under way all the time")

    def remove(self, key: str) -> None:
        """Remove an object."""
        with self._trouble(key):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of each object directly in a folder."""
        with self._trouble():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{folder}/", Delimiter="/"
            )
            found = [(str(one["Key"]), int(one["Size"])) for page in pages for one in page.get("Contents", ())]
        return {key.removeprefix(f"{folder}/"): size for key, size in found}

    def files(self, folder: str) -> list[str]:
        """Every object below a folder."""
        # Hadoop marks an empty folder with an object whose name ends so.
        return [key.removeprefix(f"{folder}/") for key in self._below(folder) if not key.endswith("/")]

    def replace(self, key: str, temporary: str, data: bytes) -> None:  # noqa: ARG002 - an object appears whole
        """Put the object."""
        with self._trouble(key):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def copy(self, key: str, target: str) -> None:
        """The store copies it itself; in parts what is larger than one copy may be."""
        with self._trouble(key):
            self._client.copy({"Bucket": self._bucket, "Key": key}, self._bucket, target)

    def move_folder(self, folder: str, target: str) -> bool:  # noqa: ARG002 - there are no folders
        """There is no such act."""
        return False

    def remove_folder(self, folder: str) -> None:
        """Remove every object below it, a thousand at a time; Hadoop's marks of folders with them."""
        keys = self._below(folder)
        for first in range(0, len(keys), _REMOVED_AT_ONCE):
            some = [{"Key": key} for key in keys[first : first + _REMOVED_AT_ONCE]]
            with self._trouble(folder):
                self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})

    def _below(self, folder: str) -> list[str]:
        with self._trouble():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=f"{folder}/")
            return [str(one["Key"]) for page in pages for one in page.get("Contents", ())]

    def _content(self, key: str) -> bytes | None:
        try:
            with self._trouble(key):
                return bytes(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        except FileNotFoundError:
            return None  # compacted meanwhile: it was another's

    def _named(self, key: str) -> str:
        return f"s3a://{self._bucket}/{key}".rstrip("/")

    @contextmanager
    def _trouble(self, key: str = "") -> Iterator[None]:
        """What the client raises, in our words; three answers are Python's own errors."""
        place = self._named(key)
        try:
            yield
        except self._answered as error:
            raise _explained(error, place) from error
        except self._failed as error:
            if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "NoRegionError"):
                hint = "export AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION, on every host."
                raise refused(place, str(error).rstrip("."), hint) from error
            raise away(place, str(error).rstrip(".")) from error


def _explained(error: Any, place: str) -> Exception:
    told = error.response.get("Error", {})
    codes = {str(told.get("Code", "")), str(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))}
    if "NoSuchBucket" not in codes and codes & _GONE:
        return FileNotFoundError(2, "there is no such object", place)
    if codes & _TAKEN:
        return FileExistsError(17, "there is such an object", place)
    if codes & _UNDER_WAY:
        return BlockingIOError(11, "another put is under way", place)
    words = f"{told.get('Code', 'an error')}: {told.get('Message', '')}".rstrip(". ")
    if codes & _NOT_OFFERED:
        return cannot_create_once(place, f"the store does not know If-None-Match ({words})")
    if codes & _NOT_ALLOWED:
        return refused(place, words, "check the bucket, and what these credentials may do there.")
    return away(place, words)


class _Unclosed:
    """A file that the client may read and not close: it closes what it has sent."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)
