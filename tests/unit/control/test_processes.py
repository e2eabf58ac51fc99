"""Shares of the processor."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lockstep.control.processes import _share


def test_a_gentle_process_has_a_smaller_share_also_where_whole_sessions_are_scheduled() -> None:
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        if _share(sleeper.pid, 5) is None:
            pytest.skip("this system does not group processes by session")
        path = Path(f"/proc/{sleeper.pid}/autogroup")
        assert path.read_text().strip().endswith("nice 5")
        assert _share(sleeper.pid, 0) is True
        assert path.read_text().strip().endswith("nice 0")
    finally:
        sleeper.kill()
        sleeper.wait()
