"""Settings: what one replica has of its own stands above what all have, and what nobody knows is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.config import load_settings
from lockstep.errors import EnvironmentError_

OWN = """
[spark]
master = "local[2]"
"spark.sql.shuffle.partitions" = 2

[replica.r1.spark]
driver_memory = "2g"
"spark.sql.shuffle.partitions" = 4
"""


def test_spark_s_own_settings_may_be_pasted_for_one_replica_too(tmp_path: Path) -> None:
    (tmp_path / "lockstep.toml").write_text(OWN, encoding="utf-8")
    settings = load_settings(tmp_path)
    r0, r1 = settings.spark_of("r0"), settings.spark_of("r1")
    assert (r0.master, r0.driver_memory, r0.conf) == ("local[2]", "1g", {"spark.sql.shuffle.partitions": "2"})
    assert (r1.master, r1.driver_memory, r1.conf) == ("local[2]", "2g", {"spark.sql.shuffle.partitions": "4"})


def test_a_setting_of_a_replica_that_nobody_knows_is_refused_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "lockstep.toml").write_text('[replica.r1.spark]\nmemory = "2g"\n', encoding="utf-8")
    with pytest.raises(EnvironmentError_, match="memory") as refused:
        load_settings(tmp_path)
    assert refused.value.code == "LS0006"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("replicas_min = 3\nreplicas_max = 2", "replicas_min is more than replicas_max"),
        ("utilisation = 0.9", "utilisation is more than utilisation_max"),
        ("budget_cores = 1\nreplicas_min = 2", "budget_cores is less than"),
        ('window_s = "2 hours"', "at most quiet_s"),
        ('scaling = "sometimes"', "policy.scaling"),
        ("replica_max = 2", "policy.replica_max"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "lockstep.toml").write_text(f"[policy]\n{text}\n", encoding="utf-8")
    with pytest.raises(EnvironmentError_, match=says):
        load_settings(tmp_path)


def test_a_policy_says_what_matters(tmp_path: Path) -> None:
    (tmp_path / "lockstep.toml").write_text('[policy]\nmax_gap_s = "500 ms"\nscaling = "auto"\n', encoding="utf-8")
    policy = load_settings(tmp_path).policy
    assert (policy.max_gap_s, policy.scaling, policy.tolerance) == (0.5, "auto", "advise")
