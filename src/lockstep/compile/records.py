"""What a Python function in a step receives for one record."""

from __future__ import annotations

from lockstep.keyed.records import Record

__all__ = ["Record"]
