"""The work of an epoch as a model: computed at once, published to sinks in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.connect.protocols import Publication
from lockstep.errors import ConnectError, RunError
from lockstep.sim.pipeline import SimStage, State, compute, digest, observe, records_between
from lockstep.store.protocols import Cut, Entry

if TYPE_CHECKING:
    from lockstep.sim.replica import SimReplica


@dataclass(frozen=True)
class SimOutput:
    """What an epoch sends to one sink."""

    sink: str
    digest: str
    rows: int


class SimWork:
    """What :class:`lockstep.runtime.epoch.epoch_steps.EpochSteps` has done for one stage of a simulated replica."""

    def __init__(self, replica: SimReplica, stage: SimStage, state: State) -> None:
        self.stage = stage
        self._replica = replica
        self._world = replica.world
        self.state = state
        self.next_state = state
        self.entry = Entry(-1, 0, {})
        self._observed: dict[str, int | None] = {}
        self.content: tuple[int, ...] = ()

    def compute(self, entry: Entry) -> list[SimOutput]:
        """The state after the epoch, and what it says to the sinks."""
        self.entry = entry
        start = self._start(entry)
        self._observed = observe(self.stage, start, entry.cut)
        self.content = self._world.content(self.stage, start, entry.cut)
        self.next_state = self.computed(start, entry)
        rows = records_between(self.stage, start, entry.cut)
        outputs = [SimOutput(sink, digest(self.next_state, sink), rows) for sink in self.stage.sinks]
        for one in outputs:
            by, lineage = str(self._replica.holder), self.next_state.lineage
            self._world.history.computed(entry.epoch, one.sink, one.digest, by=by, lineage=lineage)
        return outputs

    def computed(self, start: Cut, entry: Entry) -> State:
        """The state after the epoch."""
        results = self._replica.results
        return compute(self.stage, self.state, start, entry, self._observed, self.content, results)

    def observed(self) -> Mapping[str, int | None]:
        """What the epoch saw of event time."""
        return self._observed

    def publish(self, wanted: Publication, output: SimOutput) -> Publication:
        """Through the fence of the sink."""
        self._world.reach_sinks(self._replica)
        if self._world.faults.disk_refuses(self._world.timeline.elapsed_s) == "LS0404":
            raise ConnectError("LS0508", f'the disk of sink "{output.sink}" is full')
        side = self._world.sinks[output.sink]
        visible = len(side.visible)
        held = side.publish(wanted, self._world.timeline.now_us)
        if len(side.visible) > visible:
            self._world.published(side)
            self._world.named(wanted, self.next_state.lineage, side)
        elif self._replica.zombie:
            self._replica.tell("publishes second")
        return held

    def publication(self, epoch: int, output: SimOutput) -> Publication | None:
        """What is visible in the sink."""
        return self._world.sinks[output.sink].publication(epoch)

    def drop(self, output: SimOutput) -> None:
        """Nothing was put aside."""

    def half_publish(self, sink: str) -> None:
        """A crash before the manifest has got its name: nobody sees it, and it is swept away."""
        self._world.sinks[sink].staged.add((self.entry.epoch, str(self._replica.holder)))

    def contrast(self, held: Publication, output: SimOutput) -> str:  # noqa: ARG002
        """What differs differs."""
        return "simulated"

    def difference(self, held: Publication, output: SimOutput) -> str:  # noqa: ARG002
        """Nothing here is a float: what differs differs."""
        self._replica.note(f"diverges from {held.by} about {held.epoch}")
        return "simulated"

    def _start(self, entry: Entry) -> Cut:
        """Where the epoch begins: at the cut before it."""
        before = self._world.store.entry(entry.epoch - 1)
        history, replica = self._world.history, self._replica
        if before is None and entry.epoch > 0:
            # A zombie stood still for so long that nobody waited: production's source refuses to guess where to begin.
            if not replica.zombie:
                history.missing(entry.epoch - 1, by=str(replica.holder), floor=self._world.store.floor())
            raise RunError("LS0605", f"the cut before epoch {entry.epoch} is gone")
        start: Cut = {
            name: before.cut[name] if before is not None else source.start()
            for name, source in self._world.sources.items()
            if name in self.stage.sources
        }
        if not replica.zombie:
            for name, positions in start.items():
                history.read(name, positions, by=str(replica.holder))
        return start
