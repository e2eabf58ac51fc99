"""The door: tokens with scopes, no page of another site, no large or frequent requests."""

from __future__ import annotations

import stat

import pytest
from starlette.testclient import TestClient

from lockstep.clock import US_PER_S
from lockstep.errors import ServiceError
from lockstep.serve.guard import COOKIE
from lockstep.serve.tokens import SESSION_S, SESSIONS_MAX, Scope, Sessions, TokenBook
from tests.unit.serve.test_routes import JOB, JOBS, problem


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("scope", ["read", "operate", "submit"])
def test_a_scope_allows_what_it_says_and_what_lies_below(guarded: TestClient, book: TokenBook, scope: Scope) -> None:
    headers = bearer(book.create("ann", scope))
    assert guarded.get(JOBS, headers=headers).status_code == 200
    deactivated = guarded.post(f"{JOB}/deactivate", headers=headers)
    deleted = guarded.delete(JOB, headers=headers)
    if scope == "read":
        problem(deactivated, 403, "LS0769")
    else:
        assert deactivated.status_code == 202 and deactivated.json()["asked_by"] == "ann"
    if scope == "submit":
        problem(deleted, 409, "LS0763")
    else:
        problem(deleted, 403, "LS0769")


def test_without_a_valid_token_nobody_is_answered_but_probes(guarded: TestClient, book: TokenBook) -> None:
    book.create("ann", "read")
    refused = guarded.get(JOBS)
    problem(refused, 401, "LS0768")
    assert refused.headers["www-authenticate"].startswith("Bearer")
    problem(guarded.get(JOBS, headers=bearer("x" * 43)), 401, "LS0768")
    problem(guarded.get("/openapi.json"), 401, "LS0768")
    assert guarded.get("/healthz").status_code == 200


def test_a_revoked_token_is_refused_from_the_next_request_on(guarded: TestClient, book: TokenBook) -> None:
    headers = bearer(book.create("ann", "read"))
    book.create("bob", "read")
    assert guarded.get(JOBS, headers=headers).status_code == 200
    TokenBook(book.path).revoke("ann")
    problem(guarded.get(JOBS, headers=headers), 401, "LS0768")


def test_without_tokens_a_name_that_is_not_this_hosts_is_refused(http: TestClient) -> None:
    for host in ("127.0.0.1:8470", "localhost:8470", "[::1]:8470"):
        assert http.get(JOBS, headers={"Host": host}).status_code == 200
    for host in ("rebound.example:8470", "127.0.0.1.example", ""):
        problem(http.get(JOBS, headers={"Host": host}), 403, "LS0770")


def test_a_page_of_another_site_changes_nothing(http: TestClient) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        problem(http.post(f"{JOB}/stop", headers=headers), 403, "LS0770")
    assert http.get(JOB).json()["wanted"] is True
    own = {"Origin": "http://127.0.0.1:8470", "Sec-Fetch-Site": "same-origin"}
    assert http.post(f"{JOB}/stop", headers=own).status_code == 202


def test_a_browser_shows_its_token_once_and_gets_a_cookie_that_no_page_reads(
    guarded: TestClient, book: TokenBook
) -> None:
    token = book.create("ann", "operate")
    asked = guarded.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (asked.status_code, asked.headers["location"]) == (303, "/login")
    assert guarded.post("/login", data={"token": "wrong"}, follow_redirects=False).status_code == 401
    entered = guarded.post("/login", data={"token": token}, follow_redirects=False)
    assert entered.status_code == 303
    set_cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in set_cookie and "samesite=strict" in set_cookie and token not in set_cookie
    assert guarded.get(JOBS).status_code == 200
    problem(guarded.post(f"{JOB}/stop", headers={"Origin": "http://evil.example"}), 403, "LS0770")
    assert guarded.post(f"{JOB}/deactivate").json()["asked_by"] == "ann"
    guarded.post("/logout", follow_redirects=False)
    guarded.cookies.set(COOKIE, entered.cookies[COOKIE])
    problem(guarded.get(JOBS), 401, "LS0768")


def test_a_session_ends_with_its_time_and_with_its_token(book: TokenBook) -> None:
    now = [0]
    sessions = Sessions(book, lambda: now[0])
    token = book.create("ann", "read")
    first, second = sessions.begin(token), sessions.begin(token)
    assert first and second and sessions.find(first) is not None
    now[0] = SESSION_S * US_PER_S
    assert sessions.find(first) is None
    third = sessions.begin(token)
    assert third and sessions.find(third) is not None
    book.revoke("ann")
    assert sessions.find(third) is None and sessions.begin(token) is None
    assert sessions.find("") is None


def test_sessions_are_bounded(book: TokenBook) -> None:
    sessions, token = Sessions(book), book.create("ann", "read")
    ids = [sessions.begin(token) for _ in range(SESSIONS_MAX + 1)]
    assert sessions.find(ids[0] or "") is None and sessions.find(ids[-1] or "") is not None


def test_only_hashes_of_tokens_are_kept_and_only_their_owner_reads_them(book: TokenBook) -> None:
    token = book.create("ann", "read")
    assert token not in book.path.read_text() and stat.S_IMODE(book.path.stat().st_mode) == 0o600
    with pytest.raises(ServiceError) as refused:
        book.create("ann", "submit")
    assert refused.value.code == "LS0772"
    with pytest.raises(ServiceError):
        book.revoke("bob")


def test_a_damaged_file_of_tokens_lets_nobody_in(guarded: TestClient, book: TokenBook) -> None:
    headers = bearer(book.create("ann", "read"))
    book.path.write_text("{}")
    problem(guarded.get(JOBS, headers=headers), 400, "LS0772")
    problem(guarded.get(JOBS), 401, "LS0768")


def test_large_requests_are_refused_announced_or_not(tight: TestClient) -> None:
    large = b'{"kind": "restart", "host": "' + b"x" * 200 + b'"}'
    problem(tight.post(f"{JOB}/operations", content=large), 413, "LS0766")
    problem(tight.post(f"{JOB}/operations", content=iter([large[:150], large[150:]])), 413, "LS0766")


def test_a_caller_who_asks_too_often_waits(tight: TestClient) -> None:
    answers = [tight.get(JOBS) for _ in range(7)]
    assert [one.status_code for one in answers] == [200] * 6 + [429]
    problem(answers[-1], 429, "LS0767")
    assert int(answers[-1].headers["retry-after"]) > 0
    assert tight.get("/healthz").status_code == 200
