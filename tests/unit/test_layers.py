"""The layers hold, and what has to work without Spark does not import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_each_layer_imports_only_those_below_it() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/layers.py"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", ["lockstep", "lockstep.api", "lockstep.plan", "lockstep.api.loading", "lockstep.cli.main"]
)
def test_importing_it_does_not_import_spark(module: str) -> None:
    code = f"import sys, {module}; sys.exit(' '.join(m for m in sys.modules if m.split('.')[0] == 'pyspark') or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_the_layer_check_can_fail(tmp_path: Path) -> None:
    """A contract that checks nothing would pass for ever: a package that breaks it has to be found."""
    package = tmp_path / "wrong"
    for name in ("top", "bottom"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "bottom" / "__init__.py").write_text("import wrong.top\n")
    (tmp_path / ".importlinter").write_text(
        "[importlinter]\nroot_packages =\n  wrong\n"
        "[importlinter:contract:layers]\nname = layers\ntype = layers\n"
        "containers =\n  wrong\nlayers =\n  top\n  bottom\n"
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "layers.py")],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "wrong.bottom -> wrong.top" in done.stdout
