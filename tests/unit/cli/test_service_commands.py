"""Commands for jobs that live: on the project's own store and through a service alike, and none hangs on a dead job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from lockstep.control.operations.book import OperationBook
from lockstep.runtime.desired_run import LEASE, last_run, note_stopped
from lockstep.runtime.steering import steering
from lockstep.serve.app import create_app
from lockstep.serve.server import Listening
from lockstep.serve.service import Service
from lockstep.serve.tokens import TokenBook
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Store
from tests.unit.cli.conftest import Call
from tests.unit.serve.conftest import made_project


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Of the job in the folder that commands work in."""
    made_project(tmp_path)
    opened = open_store(address_in(tmp_path / ".lockstep"), "logins")
    yield opened
    opened.close()


@contextmanager
def serving(project: Path, book: TokenBook | None = None) -> Iterator[str]:
    """A service in a thread of this process, over a real socket; its address."""
    socket = Listening("127.0.0.1", 0).opened()
    server = uvicorn.Server(uvicorn.Config(create_app(Service(project), book), log_level="error", lifespan="on"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, args=[[socket]], daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        socket.close()


@contextmanager
def coordinated(store: Store) -> Iterator[None]:
    """Somebody who carries out whatever is asked."""
    ended, book = threading.Event(), OperationBook(store)

    def work() -> None:
        while not ended.wait(0.02):
            store.acquire(LEASE, "4711", 60)
            if (asked := book.open()) is not None:
                book.update(asked.number, lambda one: one.noted("join", 5, "r2 boots").ended("done", 9))

    store.acquire(LEASE, "4711", 60)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        store.release(LEASE, "4711")


def test_list_and_describe_say_how_jobs_are(lockstep: Call, store: Store) -> None:
    assert "logins" in lockstep("list").out
    assert lockstep("list", "--json").json()[0]["job"] == "logins"
    said = lockstep("describe").out
    assert "coordinator   none" in said and "sealed 4, published 3" in said and "r1" in said
    assert lockstep("describe", "--json").json()["spec"]["replicas"] == 2
    unknown = lockstep("describe", "nobody")
    assert unknown.code == 2 and unknown.err.startswith("LS0760")


@pytest.mark.parametrize("verb", [["rescale", "--replicas", "3"], ["restart"], ["move", "r0", "--to", "b"]])
def test_what_nobody_would_carry_out_is_said_at_once(lockstep: Call, store: Store, verb: list[str]) -> None:
    said = lockstep(*verb)
    assert said.code == 2 and said.err.startswith("LS0776")
    assert OperationBook(store).all() == []
    later = lockstep(*verb, "--no-wait")
    assert later.code == 0 and "operation 1" in later.err


def test_an_operation_is_waited_for_and_its_steps_are_shown(lockstep: Call, store: Store) -> None:
    with coordinated(store):
        said = lockstep("rescale", "--replicas", "3")
    assert said.code == 0, said.err
    assert "join: r2 boots" in said.err and "operation 1 (rescale) of logins is done" in said.err
    assert "rescale replicas=3" in lockstep("operations").out
    assert lockstep("operations", "--json").json()[0]["state"] == "done"


def test_one_that_was_rolled_back_is_an_exit_code(lockstep: Call, store: Store) -> None:
    lockstep("restart", "--no-wait")
    OperationBook(store).update(1, lambda one: one.ended("rolled-back", 9, "r2 diverged"))
    store.acquire(LEASE, "4711", 60)
    # Asked again with a key that is known, it is the one that is over.
    assert lockstep("operations", "--follow").code == 0
    lockstep("restart", "--no-wait", "--key", "k")
    OperationBook(store).update(2, lambda one: one.ended("refused", 9, "no room"))
    said = lockstep("restart", "--key", "k")
    assert said.code == 1 and "is refused: no room" in said.err


def test_ctrl_c_leaves_the_operation_running_and_says_so(
    lockstep: Call, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.acquire(LEASE, "4711", 60)

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lockstep.cli.waiting.time.sleep", interrupted)
    said = lockstep("restart")
    assert said.code == 130 and "goes on without this command" in said.err
    assert OperationBook(store).open() is not None


def test_commit_and_rollback_are_for_the_one_under_way(lockstep: Call, store: Store) -> None:
    assert lockstep("rollback").err.startswith("LS0741")
    lockstep("restart", "--no-wait")
    assert lockstep("commit").code == 0
    assert OperationBook(store).all()[0].wish == "commit"
    assert lockstep("rollback", "--operation", "1").code == 0
    assert OperationBook(store).all()[0].wish == "rollback"


def test_deactivate_activate_start_kill_and_delete(lockstep: Call, store: Store) -> None:
    assert lockstep("deactivate").code == 0 and steering(store).paused
    assert lockstep("activate").code == 0 and not steering(store).paused
    assert lockstep("delete", "logins").err.startswith("LS0763")
    assert "has ended" in lockstep("kill").err
    order = last_run(store)
    assert order is not None and not order.wanted
    note_stopped(store)
    assert lockstep("delete", "logins").code == 0
    assert lockstep("list", "--json").json() == []


def test_events_and_logs(lockstep: Call, store: Store, tmp_path: Path) -> None:
    assert lockstep("events").out.splitlines()[-1].endswith("r1 seeded from r0 at epoch 3")
    (tmp_path / ".lockstep" / "jobs" / "logins" / "coordinator.log").write_text("one\ntwo\n")
    assert lockstep("logs", "--lines", "1").out == "two\n"
    assert lockstep("logs", "--replica", "r7").err.startswith("LS0742")


def test_the_same_through_a_service(lockstep: Call, store: Store, tmp_path: Path) -> None:
    with serving(tmp_path) as url, coordinated(store):
        assert lockstep("list", "--service", url, "--json").json()[0]["coordinator"] == "4711"
        said = lockstep("rescale", "--replicas", "3", "--service", url)
        assert said.code == 0 and "join: r2 boots" in said.err
        assert "seeded" in lockstep("events", "--service", url).out
        assert lockstep("describe", "nobody", "--service", url).err.startswith("LS0760")


def test_a_service_with_tokens_wants_one_and_a_stream_goes_on_after_an_id(
    lockstep: Call, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockstep.serve.client import Client

    file = tmp_path / "tokens.json"
    made = lockstep("service-token", "create", "ann", "--scope", "operate", "--file", str(file))
    token = made.out.strip()
    with serving(tmp_path, TokenBook(file)) as url:
        assert lockstep("list", "--service", url).err.startswith("LS0768")
        monkeypatch.setenv("LOCKSTEP_SERVICE_TOKEN", token)
        assert lockstep("list", "--service", url).code == 0
        with Client(url) as client:
            coming = client.follow("logins", after=1)
            assert next(coming).kind == "seeded"
            store.add_event("executor-lost", "7", "r0")
            assert next(coming).kind == "executor-lost"
        listed = lockstep("service-token", "list", "--file", str(file), "--json").json()
        assert [(one["name"], one["scope"]) for one in listed] == [("ann", "operate")]
        assert lockstep("service-token", "revoke", "ann", "--file", str(file)).code == 0
        assert lockstep("list", "--service", url).err.startswith("LS0768")
        monkeypatch.delenv("LOCKSTEP_SERVICE_TOKEN")
        assert lockstep("list", "--service", url).err.startswith("LS0768"), "the last one lets nobody in"


def test_no_service_is_an_error_of_its_own(lockstep: Call, store: Store) -> None:
    assert lockstep("list", "--service", "http://127.0.0.1:9").err.startswith("LS0775")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "0.0.0.0:0"], "without tokens"),
        (["--listen", "nonsense"], "is no address"),
        (["--listen", "127.0.0.1:0", "--tls-key", "k.pem"], "both"),
    ],
)
def test_a_service_that_others_could_reach_is_refused(
    lockstep: Call, tmp_path: Path, arguments: list[str], said: str
) -> None:
    refused = lockstep("serve", *arguments, "--tokens", str(tmp_path / "none.json"))
    assert refused.code == 2 and refused.err.startswith("LS0771") and said in refused.err


def test_with_tokens_another_address_needs_tls_unless_told(tmp_path: Path) -> None:
    from lockstep.errors import ServiceError

    place = Listening.parsed("10.0.0.7:8470")
    with pytest.raises(ServiceError, match="without TLS"):
        place.check(has_tokens=True, insecure=False)
    place.check(has_tokens=True, insecure=True)
    with pytest.raises(ServiceError, match="without tokens"):
        place.check(has_tokens=False, insecure=True)
    Listening.parsed("10.0.0.7:8470", tmp_path / "c", tmp_path / "k").check(has_tokens=True, insecure=False)
