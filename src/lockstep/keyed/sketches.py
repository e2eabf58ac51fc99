"""Distinct values counted approximately, as Spark's ``approx_count_distinct`` counts them: HyperLogLog++.

A value's hash (computed by Spark) says which of 512 registers it belongs to, and a register keeps the longest run of
zeros seen. That is a maximum, so the order of records does not matter, and the state never grows. The relative error
is 5 % (one standard deviation).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lockstep.keyed.sums import Values

PRECISION = 9
"""Bits of a hash that choose the register: what Spark takes for a relative error of 0.05."""
_REGISTERS = 1 << PRECISION
_HASH_BITS = 64
_MASK = (1 << _HASH_BITS) - 1
_END = 1 << (PRECISION - 1)
"""A one behind the bits of the hash, where a run of zeros ends at the latest."""
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)
_NEIGHBOURS = 6


@dataclass(frozen=True)
class Bias:
    """By how much raw estimates are too high, as measured by the inventors: Spark has the table."""

    estimates: tuple[float, ...]
    biases: tuple[float, ...]
    threshold: float
    """Up to here counting the empty registers is more exact."""

    def at(self, estimate: float) -> float:
        """The mean of the biases at the nearest known estimates."""
        known = self.estimates
        low = max(bisect_left(known, estimate) - _NEIGHBOURS + 1, 0)
        high = min(low + _NEIGHBOURS, len(known))
        while high < len(known) and (estimate - known[high]) ** 2 < (estimate - known[low]) ** 2:
            low, high = low + 1, high + 1
        return math.fsum(self.biases[low:high]) / (high - low)


PLAIN = Bias((0.0,), (0.0,), 400.0)
"""Without the table, where there is no Spark: large estimates are a few percent too high."""


@dataclass(frozen=True)
class DistinctSketch:
    """The state is the registers, a byte each; None before the first value. The input is a value's hash."""

    type: pa.DataType
    bias: Bias

    def initial(self) -> Any:
        """No values yet."""
        return None

    def add(self, state: Any, values: Values) -> Any:
        """With one more record."""
        if values[0] is None:
            return state
        bits = values[0] & _MASK
        rest = (bits << PRECISION) & _MASK | _END
        index, rank = bits >> (_HASH_BITS - PRECISION), _HASH_BITS - rest.bit_length() + 1
        if state is None:
            state = bytes(_REGISTERS)
        return state if state[index] >= rank else state[:index] + bytes((rank,)) + state[index + 1 :]

    def merge(self, state: Any, later: Any) -> Any:
        """Both parts' records."""
        if state is None or later is None:
            return state or later
        return bytes(map(max, state, later))

    def result(self, state: Any) -> int:
        """The estimate, rounded as Java rounds."""
        return 0 if state is None else math.floor(self._estimate(state) + 0.5)

    def _estimate(self, registers: bytes) -> float:
        raw = _ALPHA * _REGISTERS**2 / math.fsum(2.0**-rank for rank in registers)
        if empty := registers.count(0):
            counted = _REGISTERS * math.log(_REGISTERS / empty)
            if counted <= self.bias.threshold or raw <= 2.5 * _REGISTERS:
                return counted
        return raw - self.bias.at(raw) if raw < 5 * _REGISTERS else raw
