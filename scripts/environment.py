"""Makes .venv ready: pinned packages, the project itself, Java. Does nothing, quickly, when all is there.

Runs on the machine's own Python, before anything is installed, so it uses the standard library alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".lockstep-ready.json"
UNDER_WAY = VENV / ".lockstep-installing"
REQUIREMENTS = {"runtime": "requirements.txt", "dev": "requirements-dev.txt"}


def main(kind: str) -> int:
    """Bring the environment to ``kind`` ("runtime" or "dev"); the exit code."""
    if kind not in REQUIREMENTS:
        return _sorry(f'scripts/setup takes "runtime" or "dev", not "{kind}".')
    wanted = _wanted()
    have = _stamp()
    is_ready = have.get(kind) == wanted[kind] and have.get("folder") == wanted["folder"] and _answers()
    if not is_ready and not _build(kind, wanted, have):
        return 1
    java = subprocess.call([str(PYTHON), str(ROOT / "scripts" / "java.py")])
    return java or subprocess.call([str(PYTHON), str(ROOT / "scripts" / "archive.py")])


def _wanted() -> dict[str, str]:
    """What the stamp says when all is well: a key per kind, and the folder that the editable install points to."""
    texts = {kind: (ROOT / name).read_bytes() for kind, name in REQUIREMENTS.items()}
    project = (ROOT / "pyproject.toml").read_bytes()
    version = ".".join(str(part) for part in sys.version_info[:2]).encode()
    keys = {
        "runtime": hashlib.sha256(b"\0".join([version, project, texts["runtime"]])).hexdigest(),
        "dev": hashlib.sha256(b"\0".join([version, project, texts["runtime"], texts["dev"]])).hexdigest(),
    }
    return {**keys, "folder": str(ROOT)}


def _stamp() -> dict[str, str]:
    try:
        return dict(json.loads(STAMP.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _answers() -> bool:
    """Whether .venv is whole: its Python is of the wanted version, pip works, and no install was cut short."""
    if UNDER_WAY.exists() or not PYTHON.exists():
        return False
    version = f"sys.version_info[:2] == {tuple(sys.version_info[:2])}"
    check = [str(PYTHON), "-c", f"import sys, pip; sys.exit(not ({version}))"]
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


def _build(kind: str, wanted: dict[str, str], have: dict[str, str]) -> bool:
    started = time.monotonic()
    if not _answers():
        if VENV.exists():
            _say("removing .venv: it is not whole, or of another Python")
            shutil.rmtree(VENV)
        if not _create():
            return False
        have = {}
    UNDER_WAY.touch()
    if have.get(kind) != wanted[kind]:
        _say(f"installing {REQUIREMENTS[kind]} (Spark is large: some minutes the first time, seconds later)")
        if not _pip("-r", str(ROOT / REQUIREMENTS[kind])):
            return False
    _say("installing the project into .venv")
    # A copied .venv still points to the folder it came from, hence the force.
    if not _pip("--no-deps", "--no-build-isolation", "--force-reinstall", "-e", str(ROOT)):
        return False
    if kind == "dev":
        # The benchmarks are not part of the package; their processes import them from wherever they run.
        site = next((VENV / "lib").glob("python3.*/site-packages"))
        (site / "lockstep-source-tree.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    UNDER_WAY.unlink()
    kinds = {kind: wanted[kind]} if kind == "runtime" else {"runtime": wanted["runtime"], "dev": wanted["dev"]}
    STAMP.write_text(json.dumps({**kinds, "folder": wanted["folder"]}), encoding="utf-8")
    _say(f"ready in {time.monotonic() - started:.0f} s")
    return True


def _create() -> bool:
    _say(f"creating .venv with Python {sys.version.split()[0]}")
    create = [sys.executable, "-m", "venv", str(VENV)]
    first = subprocess.run(create, capture_output=True, text=True, check=False)
    if first.returncode == 0:
        return True
    shutil.rmtree(VENV, ignore_errors=True)
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if not apt_install(package) or subprocess.call(create) != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        _sorry(f"this Python cannot make virtual environments: install {package} (Debian, Ubuntu) or a full Python.")
        return False
    return True


def apt_install(package: str) -> bool:
    """Install a missing system package where that needs no password: as root, on a machine with apt-get.

    Never touches a package that is there already: upgrading the machine is not ours to do.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    _say(f"installing {package} with apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "--no-upgrade", package]
    for command in (["apt-get", "update", "-qq"], install):
        if subprocess.run(command, capture_output=True, env=quiet, check=False).returncode != 0:
            return False
    return True


def _pip(*arguments: str) -> bool:
    """pip without its chatter; what it says is shown only if it fails."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode == 0:
        return True
    sys.stderr.write(done.stdout + done.stderr)
    _sorry("pip could not install what is pinned (its words are above). Mend that and run the same command again.")
    return False


def _say(line: str) -> None:
    sys.stderr.write(f"setup: {line}\n")
    sys.stderr.flush()


def _sorry(sentence: str) -> int:
    _say(sentence)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "dev"))
