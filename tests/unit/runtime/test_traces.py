"""Spans of epochs: what a collector gets, and that no epoch waits for one that is away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from lockstep.errors import RunError
from lockstep.runtime import traces
from lockstep.runtime.traces import StageTraces, Tracing, check_traces, tracing
from lockstep.store.protocols import Entry, Holder

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason='pip install "lockstep[telemetry]"')

SEALED_US = 1_790_000_000_000_000


@pytest.fixture(autouse=True)
def with_time_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer than a replica that ends would wait."""
    monkeypatch.setattr(traces, "CLOSING_S", 60.0)


@dataclass
class Collector:
    """What came in, as spans of OTLP."""

    address: str = ""
    spans: list[Any] = field(default_factory=list)

    def of(self, replica: str) -> dict[str, Any]:
        """The spans of a replica, by name."""
        mine = [
            one for one in self.spans if one.name.startswith("epoch") and _words(one)["lockstep.replica"] == replica
        ]
        roots = {one.span_id for one in mine}
        return {one.name: one for one in self.spans if one.span_id in roots or one.parent_span_id in roots}


def _words(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """A server that takes traces over OTLP and HTTP, and nothing else."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                found.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Ticking:
    """Each look at it is a millisecond later."""

    def __init__(self) -> None:
        self.now_us = SEALED_US + 5_000

    def __call__(self) -> int:
        self.now_us += 1_000
        return self.now_us


def lived(told: Tracing | None, checkpoint: Path, epochs: int, stage: int = 1) -> None:
    """Epochs as a replica's stage goes through them."""
    one = StageTraces(told, stage, checkpoint, Ticking())
    for epoch in range(epochs):
        one.begin(Entry(epoch, SEALED_US, {}, records=7, sealed_by="r0.1"), epoch)
        for step in ("begin", "run", "digest", "publish out", "finish"):
            one.step(step)
        one.done(published=epoch == 0)
    one.send()


def noted(into: list[str]) -> Callable[[str, str], None]:
    return lambda kind, text: into.append(f"{kind}: {text}")


def test_replicas_of_a_job_have_their_spans_of_an_epoch_in_one_trace(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    with collector() as found:
        for replica in ("r0", "r1"):
            told = tracing(found.address, "logins", Holder(replica, 3), noted([]))
            assert told is not None
            lived(told, tmp_path, 1)
            told.close()
    mine, other = found.of("r0"), found.of("r1")
    parts = {"epoch 0", "seal", "begin", "run", "digest", "publish out", "finish", "commit"}
    assert set(mine) == set(other) == parts and len(found.spans) == 2 * len(parts)
    assert len({span.trace_id for span in found.spans}) == 1
    assert len({span.span_id for span in found.spans}) == len(found.spans)
    root = mine["epoch 0"]
    assert _words(root)["lockstep.records"] == 7 and _words(root)["lockstep.published"] is True
    assert root.start_time_unix_nano == mine["seal"].start_time_unix_nano == SEALED_US * 1000
    assert mine["run"].end_time_unix_nano == mine["digest"].start_time_unix_nano
    assert root.end_time_unix_nano == mine["commit"].end_time_unix_nano


def test_a_collector_that_is_away_costs_no_epoch_anything_and_what_it_misses_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    goes_on = threading.Event()

    class Stuck(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            goes_on.wait()
            return SpanExportResult.FAILURE

    monkeypatch.setattr(traces, "QUEUED_MAX", 4)
    events: list[str] = []
    told = Tracing(Stuck(), "logins", Holder("r0", 1), noted(events))
    lived(told, tmp_path, 200)
    assert told.dropped >= 200 - 4 - traces.SENT_MAX, "nobody waited: the collector had not answered once"
    goes_on.set()
    told.close()
    assert told.dropped == 200
    assert events and events[0].startswith("traces-dropped: ")


def test_what_is_tried_again_and_again_is_one_part_and_no_two_spans_have_one_number(tmp_path: Path) -> None:
    with collector() as found:
        told = tracing(found.address, "logins", Holder("r0", 3), noted([]))
        assert told is not None
        one = StageTraces(told, 0, tmp_path)
        one.begin(Entry(0, SEALED_US, {}), 0)
        for name in ("run", "look", "look", "look", "drop", "look", "drop"):
            one.step(name)
        one.done(published=False)
        one.send()
        told.close()
    assert sorted(span.name for span in found.spans) == ["drop", "drop", "epoch 0", "look", "look", "run", "seal"]
    assert len({span.span_id for span in found.spans}) == len(found.spans)


def test_without_a_collector_nothing_is_noted(tmp_path: Path) -> None:
    assert tracing("", "logins", Holder("r0", 1), noted([])) is None
    lived(None, tmp_path, 3)


def test_a_job_that_is_to_be_traced_without_the_extra_is_refused_and_a_host_without_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_traces("http://127.0.0.1:4318")
    monkeypatch.setattr(traces, "_is_installed", lambda: False)
    check_traces("")
    with pytest.raises(RunError, match="LS0675"):
        check_traces("http://127.0.0.1:4318")
    events: list[str] = []
    assert tracing("http://127.0.0.1:4318", "logins", Holder("r0", 1), noted(events)) is None
    assert events == ['traces-off: this host has no OpenTelemetry: pip install "lockstep[telemetry]"']
