"""Tokens are private and told nobody; an address that others reach needs one; TLS goes both ways."""

from __future__ import annotations

import hmac
import stat
from pathlib import Path

import pytest

from lockstep import credentials, security
from lockstep.errors import EnvironmentError_
from lockstep.security import TlsFiles, check_listening, load_token, new_token, write_token


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_hidden", set())


def test_a_token_is_written_for_its_owner_alone_and_read_back(tmp_path: Path) -> None:
    path, token = tmp_path / "deep" / "token", new_token()
    write_token(path, token, replace=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_token(path, environ={}) == token
    with pytest.raises(EnvironmentError_, match="LS0030"):
        write_token(path, new_token(), replace=False)
    assert load_token(path, environ={}) == token, "the first one stays"
    write_token(path, other := new_token(), replace=True)
    assert load_token(path, environ={}) == other != token
    assert [each.name for each in path.parent.iterdir()] == ["token"]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o644])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    write_token(path, token := new_token(), replace=False)
    path.chmod(mode)
    with pytest.raises(EnvironmentError_, match="not private") as caught:
        load_token(path, environ={})
    assert caught.value.code == "LS0031" and token not in str(caught.value)


def test_the_variable_stands_above_the_file_and_none_of_both_is_none(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert load_token(environ=home) is None
    write_token(security.default_token_file(home), token := new_token(), replace=False)
    assert load_token(environ=home) == token
    assert load_token(environ={**home, "LOCKSTEP_TOKEN": "v" * 40}) == "v" * 40
    with pytest.raises(EnvironmentError_, match="cannot be read"):
        load_token(tmp_path / "named", environ=home)


@pytest.mark.parametrize("text", ["short", "a" * 20 + " " + "b" * 20, "x" * 40 + "\r\nHost: evil", "ü" * 40])
def test_what_cannot_stand_in_a_header_is_no_token(text: str) -> None:
    with pytest.raises(EnvironmentError_, match="LS0031") as caught:
        load_token(environ={"LOCKSTEP_TOKEN": text})
    assert text not in str(caught.value)


def test_no_error_has_a_token_that_this_process_knows(tmp_path: Path) -> None:
    token = new_token()
    assert token not in str(EnvironmentError_("LS0031", f"someone said {token}"))
    credentials._hidden.clear()
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    load_token(tmp_path / "token", environ={})
    assert token not in credentials.without_secrets(f"Authorization: Bearer {token}")


def test_tokens_are_compared_as_hashes_of_one_length_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def seen(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", seen)
    token = new_token()
    assert security.is_same_token(token, token)
    for wrong in ("", token[:-1], token + "x", "ü", "x" * 100_000):
        assert not security.is_same_token(wrong, token)
    assert compared == [(32, 32)] * 6


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "10.1.2.3", "myhost", "localhost.example"])
def test_only_loopback_is_listened_on_without_token_and_certificates(host: str) -> None:
    with pytest.raises(EnvironmentError_) as caught:
        check_listening(host, has_token=False, asks_for_certificates=False)
    assert caught.value.code == "LS0032"
    check_listening(host, has_token=True, asks_for_certificates=False)
    check_listening(host, has_token=False, asks_for_certificates=True)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "host.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    with pytest.raises(EnvironmentError_, match=r"host\.pem") as caught:
        files.for_serving()
    assert caught.value.code == "LS0033"
