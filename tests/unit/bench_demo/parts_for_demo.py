"""Parts of a demo made by hand, for tests that need no Spark."""

from __future__ import annotations

from lockstep.bench.demo.checking import Comparison
from lockstep.bench.demo.feeding import Fed
from lockstep.bench.demo.part import Alive, Part
from lockstep.bench.demo.running import Kill
from lockstep.bench.demo.watching import SeenEpoch
from lockstep.clock import US_PER_S


def seen_epochs(seen_s: list[float], latency_s: float = 0.2) -> list[SeenEpoch]:
    """Epochs that became visible at these times, each with a record that had waited for so long."""
    return [
        SeenEpoch(number, int(at_s * US_PER_S), int((at_s - latency_s) * US_PER_S), rows=1, by="r0.1")
        for number, at_s in enumerate(seen_s)
    ]


def part(
    replicas: int = 2,
    seen: list[SeenEpoch] | None = None,
    comparison: Comparison | None = None,
    epochs_compared: int = 90,
    digests_different: int = 0,
    records_missing: int = 0,
) -> Part:
    """A part of 100 seconds, an epoch every second, kills at 30 s (and at 60 s if there are two replicas)."""
    kills = [Kill("r0", 30 * US_PER_S, had_sealed_newest=True)]
    if replicas > 1:
        kills.append(Kill("r1", 60 * US_PER_S, had_sealed_newest=False))
    fed = Fed(seed=1, start_us=0, blocks=2000, behind_s_max=0.01)
    return Part(
        replicas=replicas,
        seen_epochs=tuple(seen if seen is not None else seen_epochs([float(second) for second in range(1, 100)])),
        kills=tuple(kills),
        back_s=(15.0, None)[: len(kills)],
        alive=tuple(Alive(f"r{number}", 0) for number in range(replicas)),
        end_us=100 * US_PER_S,
        fed=fed,
        records_in_journal=fed.records - records_missing,
        comparison=comparison or Comparison(expected=500, published=500),
        epochs_compared=epochs_compared if replicas > 1 else 0,
        digests_different=digests_different,
    )
