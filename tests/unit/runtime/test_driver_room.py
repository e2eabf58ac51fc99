"""How many rows may come through the driver: bounded in bytes by how wide they have been."""

from __future__ import annotations

from typing import Any, cast

from lockstep.runtime.epoch.output import BYTES_THROUGH_DRIVER_MAX, DriverRoom, SinkOutput


def _output(rows: int, bytes_: int) -> SinkOutput:
    return SinkOutput(cast("Any", None), cast("Any", None), "", rows, bytes_)


def test_few_rows_come_before_their_width_is_known_and_the_widest_epoch_counts() -> None:
    room = DriverRoom(20_000)
    assert room.rows_max() == 4096
    room.learn([_output(0, 0)])
    assert room.rows_max() == 4096
    room.learn([_output(100, 10_000), _output(100, 30_000)])
    assert room.rows_max() == 20_000
    room.learn([_output(10, 10 << 20)])
    assert room.rows_max() == BYTES_THROUGH_DRIVER_MAX >> 20
    room.learn([_output(1000, 1000)])
    assert room.rows_max() == BYTES_THROUGH_DRIVER_MAX >> 20
    room.learn([_output(1, 1 << 40)])
    assert room.rows_max() == 1
    assert DriverRoom(0).rows_max() == 0
