"""Operations of a store, delayed and failed on order. The real store does the work behind them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from lockstep.clock import wall_us
from lockstep.errors import StoreError
from lockstep.faults.orders import Orders, StoreOrder
from lockstep.faults.switch import switch

LOOK_INTERVAL_S = 0.02
"""How often a process looks for new orders: a store is asked hundreds of times a second."""


class Interference:
    """What happens to each operation of one opened store."""

    def __init__(self, orders: Orders, chance: Callable[[], float] = random.random) -> None:
        self._orders = orders
        self._chance = chance
        self._looked_s = 0.0
        self._standing: list[StoreOrder] = []

    def around(self, operation: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Carry ``operation`` out, as the orders let it."""
        fitting = [order for order in self._orders_now() if _fits(order, operation)]
        hitting = [order for order in fitting if self._hits(order)]
        for order in hitting:
            time.sleep(order.delay_s)
        for order in hitting:
            if order.error and not order.after:
                raise _failure(operation, order)
        answer = method(*arguments, **named)
        for order in hitting:
            if order.error:
                raise _failure(operation, order)
        return answer

    def _orders_now(self) -> list[StoreOrder]:
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_INTERVAL_S:
            self._looked_s = now_s
            self._standing = [order for order in self._orders.pending() if isinstance(order, StoreOrder)]
        now_us = wall_us()
        return [order for order in self._standing if now_us < order.until_us]

    def _hits(self, order: StoreOrder) -> bool:
        if order.chance < 1 and self._chance() >= order.chance:
            return False
        return order.times_max is None or self._orders.claim_one_of(order)


def _fits(order: StoreOrder, operation: str) -> bool:
    return order.replica in ("", switch.who) and ("*" in order.operations or operation in order.operations)


def _failure(operation: str, order: StoreOrder) -> StoreError:
    done = "it was carried out, and its answer got lost" if order.after else "it was not carried out"
    if order.error == "LS0404":
        return StoreError(
            "LS0404",
            f"the store cannot be read or written ({operation})",
            why=f"database or disk is full: {done}; fault {order.name}.",
            hint="this is a fault on order: unset LOCKSTEP_FAULTS.",
        )
    return StoreError(
        "LS0413",
        f"the store was locked by another process for too long ({operation})",
        why=f"{done}; fault {order.name}.",
        hint="this is a fault on order: unset LOCKSTEP_FAULTS.",
    )
