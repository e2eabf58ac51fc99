"""The pages over real stores with made-up histories, read as a browser would read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lockstep.clock import US_PER_S
from lockstep.control.coordinator.taking_over import TERM
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.verbs import JobVerbs, Manner, with_replicas
from lockstep.keyed.loads import HotKey, StepLoad
from lockstep.runtime.desired_run import LEASE, last_run, note_desired
from lockstep.runtime.measurements import Measured, measured_key
from lockstep.runtime.steering import steering
from lockstep.serve.app import create_app
from lockstep.serve.models import StateRows
from lockstep.serve.pages.markup import VOID
from lockstep.serve.pages.more import state_rows
from lockstep.serve.service import Service
from lockstep.store.opening import open_hosts
from lockstep.store.protocols import Digest, Progress
from tests.unit.serve.made_up import MadeUp

LOCAL = "http://127.0.0.1:8470"
NASTY = '<script>alert("x")</script>'
TABS = ("", "/replicas", "/plan", "/epochs", "/operations", "/events", "/state", "/savepoints", "/policy")
PAGE_BYTES_MAX = 100_000


class Read(HTMLParser):
    """A page as its parts: elements with their attributes, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.captions = 0
        self.feed(html)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[MadeUp]:
    one = MadeUp(tmp_path)
    yield one
    one.store.close()


@pytest.fixture
def client(made: MadeUp) -> Iterator[TestClient]:
    with TestClient(create_app(made.service()), base_url=LOCAL, follow_redirects=False) as opened:
        yield opened


def read(client: TestClient, path: str, status: int = 200) -> Read:
    response = client.get(path)
    assert response.status_code == status, response.text
    assert len(response.content) < PAGE_BYTES_MAX
    return Read(response.text)


def everywhere(made: MadeUp) -> list[str]:
    job = f"/jobs/{made.job}"
    asked = [f"{job}/ask/{verb}" for verb in ("rescale", "restart", "move", "deactivate", "stop", "kill")]
    return ["/", "/hosts", "/cluster", *(job + tab for tab in TABS), f"{job}/epochs/7", f"{job}/operations/1", *asked]


def test_every_page_of_a_job_that_lives_is_whole_small_and_has_labels(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(60, away=range(20, 32), late=2)
    JobVerbs(made.store, made.job, made.clock).restart()
    for path in everywhere(made):
        page = read(client, path)
        assert page.all("html")[0]["lang"] == "en" and page.all("title") and page.all("main"), path
        assert len(page.all("h1")) == 1, path
        assert len(page.all("caption")) == len(page.all("table")), path
        assert all(one.get("scope") in ("col", "row") for one in page.all("th")), path
        assert all("aria-label" in one for one in page.all("nav")), path
        pictures = [one for one in page.all("svg") if one.get("role") == "img"]
        assert len(pictures) <= len(page.all("title")) - 1, f"{path}: a picture without words"
        ids = [one["id"] for _, one in page.elements if "id" in one]
        assert len(ids) == len(set(ids)), f"{path}: an id twice"


def test_nothing_a_page_says_can_run(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(30)
    for path in everywhere(made)[:-6]:
        response = client.get(path)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        page = Read(response.text)
        assert [one["src"] for one in page.all("script")] == ["/static/pages.js"], path
        for tag, attributes in page.elements:
            assert not any(name.startswith("on") or name == "style" for name in attributes), (path, tag, attributes)
        assert all(one.get("href", "").startswith(("/", "#", "data:image/svg+xml,")) for one in page.all("link"))


def test_what_users_and_jobs_wrote_is_escaped_everywhere(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(40)
    made.event(made.end_us, "replica-failed", f"failed with {NASTY}", "r1")
    made.event(made.end_us, NASTY, NASTY, NASTY)
    made.report("r0", 39, note=NASTY, host=NASTY)
    made.differ(20, f"ours {NASTY}")
    made.store.set_fact(
        "decisions", json.dumps([{"at_us": made.end_us, "what": NASTY, "why": NASTY, "outcome": NASTY}])
    )
    asked = JobVerbs(made.store, made.job, made.clock).rescale(replicas=3, manner=Manner(asked_by=NASTY))
    OperationBook(made.store, made.clock).update(asked.number, lambda one: one.noted(NASTY, made.end_us, NASTY))
    seen = 0
    for path in [*everywhere(made), f"/jobs/{made.job}/epochs/20"]:
        response = client.get(path)
        assert "<script>alert" not in response.text, path
        page = Read(response.text)
        assert len(page.all("script")) == 1, path
        seen += NASTY in page.text
    assert seen >= 6, "the texts have to be seen, as text"
    for path in (f"/jobs/{NASTY}", f"/{NASTY}", f"/jobs/{made.job}/ask/{NASTY}"):
        assert "<script>alert" not in client.get(path).text


def test_a_job_page_says_whether_output_flows_and_what_a_loss_would_show(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(30)
    path = f"/jobs/{made.job}"
    page = read(client, path).text
    assert "Is output flowing? Yes" in page and "Would losing a replica show? No" in page
    assert "2 of 2 replicas are within the lead" in page
    made.clock.now_us += 60 * US_PER_S
    page = read(client, path).text
    assert "Is output flowing? No" in page and "Would losing a replica show?" in page
    assert "not running" in page


def test_the_columns_of_epochs_tell_who_published_who_was_away_and_who_differed(
    made: MadeUp, client: TestClient
) -> None:
    made.begin()
    made.live(250, away=range(100, 110), late=3)
    made.differ(180, "one row differs")
    titles = re.findall(r"<title>(r\d, epochs [^<]*)</title>", client.get(f"/jobs/{made.job}/replicas").text)
    # Of 250 epochs the last 200 are shown: 50 to 249. Replicas publish in turn: r0 the even ones, r1 the odd.
    missed = 10 + 3
    odd = len([e for e in range(50, 250) if e % 2 and e not in range(100, 110) and e < 247])
    assert titles[0] == (
        f"r0, epochs 50 to 249: {200 - odd} published here, {odd} computed, equal to what was published"
    )
    assert titles[1] == (
        f"r1, epochs 50 to 249: {odd} published here, {200 - odd - missed - 1} computed, equal to what was published, "
        "3 not computed yet, 10 not computed here, 1 different from what was published"
    )


def test_digests_that_differ_show_before_anybody_has_judged(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(10)
    made.store.add_digests([Digest(4, "files", "r1", 9, "f" * 32, 40, "v1")])
    assert "1 different from what was published" in client.get(f"/jobs/{made.job}/replicas").text
    page = read(client, f"/jobs/{made.job}/epochs/4")
    assert "different" in page.text and "equal" in page.text


def test_an_epoch_page_has_cut_marks_digests_and_rows_that_differ(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(50)
    made.differ(20, 'customer 7: {"documents": 3} against {"documents": 4}')
    page = read(client, f"/jobs/{made.job}/epochs/20").text
    for said in ("10,000", "10,500", "event_time", "0" * 16, 'sink "files"', "customer 7", "reseed", "r0.1"):
        assert said in page, said
    assert "Nothing is kept of it" in read(client, f"/jobs/{made.job}/epochs/9999").text


def test_what_is_wanted_follows_a_change_of_the_job(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(20)
    path = f"/jobs/{made.job}"
    assert "2 of 2 replicas are within the lead" in read(client, path).text
    order = last_run(made.store)
    assert order is not None
    note_desired(made.store, with_replicas(order, 3))
    made.clock.now_us += US_PER_S
    assert "2 of 3 replicas are within the lead" in read(client, path).text


def test_a_button_leads_to_a_page_that_says_what_will_happen_and_then_to_an_operation(
    made: MadeUp, client: TestClient
) -> None:
    made.begin()
    made.live(20)
    page = read(client, f"/jobs/{made.job}")
    buttons = [one["href"] for one in page.all("a") if "button" in one.get("class", "")]
    assert buttons == [
        f"/jobs/{made.job}/ask/{v}" for v in ("rescale", "restart", "move", "deactivate", "stop", "kill")
    ]
    asking = read(client, buttons[0])
    assert "what will happen" in asking.text and "Output goes on meanwhile" in asking.text
    hidden = {one["name"]: one["value"] for one in asking.all("input") if one.get("type") == "hidden"}
    for _ in range(2):  # a form that is sent twice asks once
        done = client.post(buttons[0], data={**hidden, "replicas": "3", "partitions": "", "cores": ""})
        assert done.status_code == 303 and done.headers["location"] == f"/jobs/{made.job}/operations/1"
    (operation,) = OperationBook(made.store).all()
    assert operation.kind == "rescale" and operation.arguments == {"replicas": 3}
    assert "rescale (replicas 3)" in read(client, done.headers["location"]).text
    back = read(client, f"/jobs/{made.job}/operations/1/ask/rollback")
    hidden = {one["name"]: one["value"] for one in back.all("input") if one.get("type") == "hidden"}
    assert client.post(f"/jobs/{made.job}/operations/1/ask/rollback", data=hidden).status_code == 303
    assert OperationBook(made.store).all()[0].wish == "rollback"


def test_deactivate_activate_stop_and_kill_do_what_they_say(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(20)

    def ask(verb: str) -> None:
        path = f"/jobs/{made.job}/ask/{verb}"
        hidden = {o["name"]: o["value"] for o in read(client, path).all("input") if o.get("type") == "hidden"}
        assert client.post(path, data=hidden).status_code == 303

    ask("deactivate")
    assert steering(made.store).paused
    made.clock.now_us += US_PER_S
    assert "paused" in read(client, f"/jobs/{made.job}").text
    ask("activate")
    assert not steering(made.store).paused
    ask("stop")
    order = last_run(made.store)
    assert order is not None and not order.wanted and not order.at_once
    ask("kill")
    order = last_run(made.store)
    assert order is not None and order.at_once


def test_a_form_without_the_secret_of_the_page_changes_nothing(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(20)
    path = f"/jobs/{made.job}/ask/stop"
    page = read(client, path)
    hidden = {one["name"]: one["value"] for one in page.all("input") if one.get("type") == "hidden"}
    cookie = client.cookies["lockstep_form"]
    for data, jar in (({}, cookie), ({**hidden, "form_token": "0" * 64}, cookie), (hidden, "another"), (hidden, "")):
        client.cookies.clear()
        if jar:
            client.cookies.set("lockstep_form", jar)
        refused = client.post(path, data=data)
        assert refused.status_code == 403 and "LS0780" in refused.text
    client.cookies.clear()
    assert client.post(path, data={**hidden, "more": "x" * 20_000}).status_code == 403
    order = last_run(made.store)
    assert order is not None and order.wanted


def test_wrong_fields_pages_and_jobs_are_explained(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(20)
    path = f"/jobs/{made.job}/ask/rescale"
    hidden = {one["name"]: one["value"] for one in read(client, path).all("input") if one.get("type") == "hidden"}
    for fields, code in (({"replicas": "many"}, "LS0781"), ({}, "LS0745"), ({"replicas": "99"}, "LS0745")):
        answer = client.post(path, data={**hidden, **fields})
        assert code in Read(answer.text).text and answer.status_code in (422, 400)
    assert "LS0783" in read(client, f"/jobs/{made.job}/nope", 404).text
    assert "LS0760" in read(client, "/jobs/nobody", 404).text
    assert "LS0782" in read(client, f"/jobs/{made.job}/ask/explode", 404).text
    assert not OperationBook(made.store).all()


def test_a_page_stays_small_however_much_a_job_says(made: MadeUp, client: TestClient) -> None:
    made.begin(16)
    for name, holder in made.holders.items():
        made.store.report(Progress(name, holder.incarnation, 1, "running", epoch=199, updated_us=made.end_us))
    names = sorted(made.holders)
    for epoch in range(200):
        # Whoever publishes changes with every epoch: nothing can be drawn as one piece.
        made.epoch(epoch, made.at(epoch, 200), names[epoch % 16 :] + names[: epoch % 16])
    for _ in range(300):
        made.event(made.end_us, "replica-failed", "x" * 5_000, "r1")
    for path in (f"/jobs/{made.job}{tab}" for tab in TABS):
        assert len(client.get(path).content) < PAGE_BYTES_MAX, path


def test_the_cluster_page_says_how_the_store_is_who_coordinates_and_what_is_free(
    made: MadeUp, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.begin()
    made.live(5)
    made.store.acquire(LEASE, "h1.77.abc", 60)
    made.store.set_fact(TERM, "3")
    made.report("r0", 4, host="h1", executors=4, executors_lost=1)
    hosts = open_hosts(made.service().address)
    hosts.announce("h1", {"cores": 8, "memory_bytes": 2**34, "memory_free_bytes": 2**33, "version": "9.9"})
    hosts.close()
    page = read(client, "/cluster")
    for said in ("sqlite", "one read of it", "h1.77.abc", "saas-monitor r0", "9.9", "16.0 GB", "8.0 GB", "local[1]"):
        assert said in page.text, said
    assert [one["aria-current"] for one in page.all("a") if one.get("href") == "/cluster"] == ["page"]
    said = client.get("/api/v1/cluster").json()
    assert said["coordinators"] == [
        {"job": "saas-monitor", "wanted": True, "coordinator": "h1.77.abc", "term": 3, "trouble": ""}
    ]
    assert (said["hosts"][0]["cores_free"], said["hosts"][0]["replicas"]) == (7, ["saas-monitor/r0"])
    assert [(one["executors"], one["lost"]) for one in said["executors"]] == [(4, 1)]


def test_the_cluster_page_of_a_store_that_does_not_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.serve.cluster.PATIENCE_S", 0.3)
    (tmp_path / "lockstep.toml").write_text('store = "zookeeper://127.0.0.1:1,127.0.0.1:2/lockstep"\n')
    with TestClient(create_app(Service(tmp_path)), base_url=LOCAL) as client:
        page = read(client, "/cluster").text
    assert "it does not answer: LS0421" in page and "0 of 2 members serve" in page


def test_the_plan_says_which_bucket_and_which_key_of_a_step_have_too_much(made: MadeUp, client: TestClient) -> None:
    made.begin()
    made.live(5)
    path = f"/jobs/{made.job}/plan"
    assert "No step that runs in Python by key has had records yet" in read(client, path).text
    order = json.loads(made.store.fact("drawing") or "{}")["graph"]["steps"]
    step = next(one["id"] for one in order if one.get("stateful"))
    load = StepLoad(step, {17: 900, 2: 100, 3: 100}, (HotKey(NASTY, 17, 0.8),))
    made.store.set_fact(measured_key("r0"), Measured(loads=(load,)).to_text())
    made.clock.now_us += US_PER_S
    page = read(client, path)
    assert "skew 9.0 (bucket 17)" in page.text and f"{NASTY} 80 %" in page.text and "bucket 17, 82 %" in page.text
    assert len(page.all("script")) == 1


def test_rows_of_state_and_what_the_policy_remembers_are_shown_as_they_are(made: MadeUp, client: TestClient) -> None:
    rows = [{"customer": 7, "documents": NASTY}]
    found = StateRows(job=made.job, step="agg", epoch=1234, columns=["customer", "documents"], rows=rows, more=True)
    page = Read(state_rows(found))
    assert "7" in page.text and NASTY in page.text and "As of epoch 1,234. There is more" in page.text
    assert not page.all("script")
    made.begin()
    made.live(5)
    # As the policy keeps it: failures and hours by cause, over a day.
    memory = {"tolerance": {"rates": {"day": {"process": [3.0, 12.0], "host": [0.0, 0.0]}}}}
    made.store.set_fact("policy", json.dumps(memory))
    said = read(client, f"/jobs/{made.job}/policy").text.split("An hour")[1].split()
    assert said[:8] == ["host", "0.0", "0.0", "–", "process", "3.0", "12.0", "0.25"]
