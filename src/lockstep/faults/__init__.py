"""Faults on order: how chaos reaches the moments that no kill from outside can hit.

Off unless the environment variable ``LOCKSTEP_FAULTS`` names a folder; then the processes of a job obey the orders that
lie in it, and say so in their logs and in the job's events. Nothing here decides anything: an order says what happens,
where and to whom.

- :mod:`~lockstep.faults.switch`: whether it is on, and for whom this process acts;
- :mod:`~lockstep.faults.orders`: the orders and their files, each obeyed by exactly one process;
- :mod:`~lockstep.faults.windows`: the crash windows in the life of an epoch, and what is done there;
- :mod:`~lockstep.faults.operations`: operations of a store delayed and failed, the real store behind them.
"""
