"""A model of a job's replicas: who is away until when, and when nobody published."""

from __future__ import annotations

from lockstep.control.policy.observations import Failure, Recovery
from lockstep.control.policy.tolerance import Mode
from lockstep.sim.policy.scenario import CRASH, Strike

US = 1_000_000
SPARE_BOOT = 2.0
"""A spare boots in idle time: so many times as long as a replica."""


class Fleet:
    """Replicas on hosts."""

    def __init__(self, hosts: int, mode: Mode) -> None:
        self.hosts = hosts
        self.spares = mode.spares
        self.host_of: list[int] = []
        self.back_s: list[float] = []
        self.host_back_s = [0.0] * hosts
        self.spare_ready_s = 0.0
        self.gaps: list[tuple[float, float]] = []
        """(begin, end) of all times in which nobody published."""
        self.failures: list[Failure] = []
        self.recovering: list[tuple[float, Recovery]] = []
        for _ in range(mode.replicas):
            self._join(0.0, 0.0)

    @property
    def replicas(self) -> int:
        """How many there are."""
        return len(self.back_s)

    def resize(self, now_s: float, replicas: int, spares: int | None, cold_s: float) -> None:
        """Have so many; new ones boot first, and those leave that are away for longest."""
        while self.replicas < replicas:
            self._join(now_s, cold_s)
        while self.replicas > replicas:
            last = max(range(self.replicas), key=lambda slot: (self.back_s[slot], slot))
            del self.back_s[last], self.host_of[last]
        if spares is not None and spares > self.spares:
            self.spare_ready_s = now_s + SPARE_BOOT * cold_s
        self.spares = spares if spares is not None else self.spares

    def move(self, now_s: float, slot: int, avoid: int | None, cold_s: float) -> None:
        """Start a replica on another host, if there is one. Another one goes on meanwhile."""
        host = self._free_host(now_s, avoid)
        if slot < self.replicas and host is not None:
            self.host_of[slot] = host
            self.back_s[slot] = now_s + (cold_s if self.replicas > 1 else 0.0)

    def strike(self, one: Strike) -> bool:
        """Something fails; whether that hit a replica."""
        if one.kind == CRASH:
            hit = [one.subject] if one.subject < self.replicas and self.back_s[one.subject] <= one.at_s else []
        else:
            hit = self._lose_host(one)
        for slot in hit:
            self._fall(slot, one)
        if hit:
            self._note_gap(one.at_s)
        return bool(hit)

    def crash_by_itself(self, now_s: float, until_s: float, epoch: int) -> None:
        """All crash in one epoch, with one error, again and again."""
        for slot in range(self.replicas):
            self.back_s[slot] = max(self.back_s[slot], until_s)
            host = f"h{self.host_of[slot]}"
            self.failures.append(Failure(round(now_s * US), f"r{slot}", host, "process", epoch, "LS0301 step fails"))

    def _lose_host(self, one: Strike) -> list[int]:
        self.host_back_s[one.subject] = max(self.host_back_s[one.subject], one.at_s + one.away_s)
        if self.spares and self.hosts > 1 and self._spare_host() == one.subject:
            self.spare_ready_s = max(self.spare_ready_s, one.at_s + SPARE_BOOT * one.cold_s)
        return [slot for slot in range(self.replicas) if self.host_of[slot] == one.subject]

    def _spare_host(self) -> int:
        return (self.host_of[0] + 1) % self.hosts

    def _fall(self, slot: int, one: Strike) -> None:
        cause = "process" if one.kind == CRASH else "host"
        name, host = f"r{slot}", self.host_of[slot]
        self.failures.append(Failure(round(one.at_s * US), name, f"h{host}", cause))
        if one.kind != CRASH:
            found = self._free_host(one.at_s, host)
            self.host_of[slot] = host if found is None else found
        away_s = max(0.0, self.host_back_s[self.host_of[slot]] - one.at_s)
        warm = bool(self.spares) and self.spare_ready_s <= one.at_s and not away_s
        took_s = one.warm_s if warm else one.cold_s + away_s
        if warm:
            self.spare_ready_s = one.at_s + SPARE_BOOT * one.cold_s
        self.back_s[slot] = one.at_s + took_s
        self.recovering.append((one.at_s + took_s, Recovery(name, took_s, warm)))

    def _note_gap(self, now_s: float) -> None:
        back_s = min(self.back_s)
        if back_s <= now_s:
            return
        if self.gaps and now_s < self.gaps[-1][1]:
            self.gaps[-1] = (self.gaps[-1][0], max(back_s, self.gaps[-1][1]))
        else:
            self.gaps.append((now_s, back_s))

    def _join(self, now_s: float, cold_s: float) -> None:
        host = self._free_host(now_s, None)
        self.host_of.append(0 if host is None else host)
        self.back_s.append(now_s + cold_s)

    def _free_host(self, now_s: float, avoid: int | None) -> int | None:
        """The host with the fewest replicas of those that are there; the one to be avoided has none to offer."""
        there = [host for host in range(self.hosts) if self.host_back_s[host] <= now_s and host != avoid]
        return min(there, key=lambda host: (self.host_of.count(host), host), default=None)


def gaps_of(hosts: int, mode: Mode, happened: list[Strike], max_gap_s: float) -> int:
    """How many pauses longer than ``max_gap_s`` a job has that stays in one mode."""
    fleet = Fleet(hosts, mode)
    for one in happened:
        fleet.strike(one)
    return sum(1 for begin_s, end_s in fleet.gaps if end_s - begin_s > max_gap_s)
