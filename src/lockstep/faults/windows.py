"""The crash windows: a replica calls :func:`reached` at each, and an order decides whether anything happens there."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import psutil

from lockstep.faults.orders import Harm, Orders, Window, WindowOrder
from lockstep.faults.switch import switch

__all__ = ["Window", "reached"]


def reached(window: Window, replica: str, epoch: int, leading: Callable[[], bool] | None = None) -> None:
    """A replica is at ``window`` of ``epoch``. Does nothing, unless faults are on and an order fits.

    ``leading`` answers whether this replica is the first here, the one whose crash the others have to make up for; it
    is asked only if an order wants to know.
    """
    if switch.harm_here is not None:
        switch.harm_here(window, replica, epoch)
    if switch.folder is not None:
        _obey(_orders(switch.folder), window, replica, epoch, leading)


@lru_cache(maxsize=4)
def _orders(folder: Path) -> Orders:
    return Orders(folder)


def _obey(orders: Orders, window: Window, replica: str, epoch: int, leading: Callable[[], bool] | None) -> None:
    for order in orders.pending():
        if not isinstance(order, WindowOrder) or not _fits(order, window, replica, epoch):
            continue
        if order.leading and leading is not None and not leading():
            continue
        if orders.claim(order.name):
            orders.note_obeyed(order.name, window, replica, epoch)
            print(f"fault {order.name}: {order.harm} at {window}, epoch {epoch}", file=sys.stderr, flush=True)
            _do(order)


def _fits(order: WindowOrder, window: Window, replica: str, epoch: int) -> bool:
    return order.window == window and order.replica in ("", replica) and epoch >= order.from_epoch


def _do(order: WindowOrder) -> None:
    match order.harm:
        case Harm.PAUSE:
            time.sleep(order.pause_s)
        case Harm.KILL_JVM:
            _kill(jvms())
        case Harm.KILL_WORKERS:
            _kill(workers())
        case Harm.KILL_DRIVER:
            os.kill(os.getpid(), signal.SIGKILL)
        case Harm.STOP:
            stop_self()
        case Harm.KILL:
            kill_self()


def kill_self() -> None:
    """kill -9 of this process and all below it."""
    # Those below first: once this process is gone, nobody knows them any more.
    _kill(psutil.Process().children(recursive=True))
    os.kill(os.getpid(), signal.SIGKILL)


def stop_self() -> None:
    """SIGSTOP of this process and all below it."""
    for one in _children(psutil.Process()):
        try:
            one.suspend()
        except psutil.NoSuchProcess:
            continue
    os.kill(os.getpid(), signal.SIGSTOP)


def jvms() -> list[psutil.Process]:
    """The JVMs below this process."""
    return [one for one in psutil.Process().children(recursive=True) if _name(one).startswith("java")]


def workers() -> list[psutil.Process]:
    """The Python processes below the JVMs below this process."""
    return [worker for jvm in jvms() for worker in _children(jvm) if _name(worker).startswith("python")]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _kill(processes: list[psutil.Process]) -> None:
    for one in processes:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
