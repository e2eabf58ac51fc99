"""The states of all buckets of a task, asked for together.

Spark's Python worker asks its JVM for one thing at a time and waits for each answer, which costs more than the answer
itself. The JVM reads what it is asked in order, so that many questions can be on their way at once: the fronts of all
buckets are fetched with the first of them, and what a bucket has changed is sent as one. A bucket with nothing to do
then costs no wait at all. It speaks the messages of PySpark's own client, whose version is pinned.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.serializers import write_int
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from lockstep.keyed.pages import FRONT

_STATE = "pages"
_NAME = StructType([StructField("name", StringType())])
_PAGE = StructType([StructField("page", BinaryType())])
_WAITING_MAX = 128
"""So many questions are on their way at most: their answers have to fit into a socket's buffer while more are asked."""


class BucketStates:
    """Pages by name, of one bucket after the other. Everything put is on its way once :meth:`settle` returns."""

    def __init__(self, handle: StatefulProcessorHandle, buckets: int) -> None:
        handle.getMapState(_STATE, _NAME, _PAGE)
        self._client: Any = handle._statefulProcessorApiClient
        # Spark would tell the JVM of every bucket that has a row. We do, of those that are asked for.
        self._client.set_implicit_key = lambda key: None  # noqa: ARG005
        self._buckets = buckets
        self._fronts: dict[int, bytes | None] = {}
        self._bucket: int | None = None
        self._at: int | None = None
        """The bucket that the JVM has been told of last."""
        self._waiting = 0
        self._names: dict[str, bytes] = {}

    def turn_to(self, bucket: int) -> BucketStates:
        """The page store of one bucket, until the next call."""
        if not self._fronts:
            self._fronts = self._read_fronts(range(self._buckets))
        self._bucket = bucket
        return self

    def get(self, name: str) -> bytes | None:
        """The value under ``name``, None if there is none."""
        assert self._bucket is not None
        if name == FRONT:
            return self._fronts[self._bucket]
        self._tell(self._bucket)
        self.settle()
        self._ask(getValue=_messages().GetValue(userKey=self._name(name)))
        return self._value()

    def put(self, name: str, value: bytes) -> None:
        """Keep ``value`` under ``name``."""
        page = self._client._serialize_to_bytes(_PAGE, (value,))
        self._change(name, updateValue=_messages().UpdateValue(userKey=self._name(name), value=page))

    def delete(self, name: str) -> None:
        """Forget what is under ``name``."""
        self._change(name, removeKey=_messages().RemoveKey(userKey=self._name(name)))

    def settle(self) -> None:
        """Wait until the JVM has taken all that it was told."""
        waiting, self._waiting = self._waiting, 0
        if waiting:
            self._client.sockfile.flush()
        for _ in range(waiting):
            self._answer()

    def _change(self, name: str, **call: Any) -> None:
        assert self._bucket is not None
        self._tell(self._bucket)
        self._ask(**call)
        self._waiting += 1
        if name == FRONT:
            # Read once in an epoch: what was there must not be taken for what is there now.
            del self._fronts[self._bucket]
        if self._waiting >= _WAITING_MAX:
            self.settle()

    def _read_fronts(self, buckets: Iterable[int]) -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        asked: list[int] = []
        for bucket in buckets:
            self._tell(bucket)
            self._ask(getValue=_messages().GetValue(userKey=self._name(FRONT)))
            asked.append(bucket)
            if len(asked) >= _WAITING_MAX // 2:
                found |= self._fronts_of(asked)
                asked = []
        return found | self._fronts_of(asked)

    def _fronts_of(self, asked: list[int]) -> dict[int, bytes | None]:
        """The answers about these buckets: each was told to the JVM, then asked for."""
        self._client.sockfile.flush()
        self._waiting -= len(asked)
        found = {}
        for bucket in asked:
            self._answer()
            found[bucket] = self._value()
        return found

    def _tell(self, bucket: int) -> None:
        if bucket == self._at:
            return
        messages = _messages()
        key = self._client._serialize_to_bytes(self._client.key_schema, (bucket,))
        request = messages.ImplicitGroupingKeyRequest(setImplicitKey=messages.SetImplicitKey(key=key))
        self._send(messages.StateRequest(implicitGroupingKeyRequest=request))
        self._at = bucket
        self._waiting += 1

    def _ask(self, **call: Any) -> None:
        messages = _messages()
        asked = messages.StateVariableRequest(mapStateCall=messages.MapStateCall(stateName=_STATE, **call))
        self._send(messages.StateRequest(stateVariableRequest=asked))

    def _send(self, message: Any) -> None:
        data = message.SerializeToString()
        write_int(0, self._client.sockfile)
        write_int(len(data), self._client.sockfile)
        self._client.sockfile.write(data)

    def _value(self) -> bytes | None:
        self._client.sockfile.flush()
        value = self._answer()
        return bytes(self._client._deserialize_from_bytes(value)[0]) if value else None

    def _answer(self) -> bytes:
        status, error, value = self._client._receive_proto_message()
        if status != 0:
            raise RuntimeError(f"Spark's state store refused a call: {error}")
        return bytes(value)

    def _name(self, name: str) -> bytes:
        if name not in self._names:
            self._names[name] = self._client._serialize_to_bytes(_NAME, (name,))
        return self._names[name]


def _messages() -> Any:
    from pyspark.sql.streaming.proto import StateMessage_pb2

    return StateMessage_pb2
