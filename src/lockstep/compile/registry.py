"""The families of steps: each module registers its lowerings and operators when it is imported."""

from __future__ import annotations

from lockstep.compile import bolts, changes, explode, joins, processes, rolling, steps, windowed

FAMILIES = (steps, explode, joins, processes, rolling, changes, windowed, bolts)
