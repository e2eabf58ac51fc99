"""The input: more of it, none of it, too late, or not what the schema says."""

from __future__ import annotations

from random import Random

from lockstep.chaos.vocabulary import Action, Deed, Need, Part, RunningJob

LOAD_FACTORS = (3, 5, 8)
LOAD_S = (3.0, 8.0)
QUIET_S = (4.0, 12.0)
RECORDS = (20, 200)


class AddLoad(Action):
    """Several times the rate for a while."""

    name = "add-load"
    title = "feed several times as many records a second for a while"
    requires = frozenset({Need.FED})
    takes = frozenset({Part.INPUT})
    lasts_s_max = LOAD_S[1]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Raise the rate, and lower it at the end."""
        factor, lasts_s = draw.choice(LOAD_FACTORS), round(draw.uniform(*LOAD_S), 1)
        running.feeding.set_rate(factor)
        return Deed(
            f"{factor} times the rate for {lasts_s} s",
            data={"factor": factor},
            lasts_s=lasts_s,
            undo=lambda: running.feeding.set_rate(1.0),
        )


class GoQuiet(Action):
    """Nothing comes for a while."""

    name = "go-quiet"
    title = "feed nothing for a while; epochs and event time have to go on by heartbeats"
    requires = frozenset({Need.FED})
    takes = frozenset({Part.INPUT})
    lasts_s_max = QUIET_S[1]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Stop feeding, and begin again at the end."""
        lasts_s = round(draw.uniform(*QUIET_S), 1)
        running.feeding.set_rate(0.0)
        return Deed(f"no input for {lasts_s} s", lasts_s=lasts_s, undo=lambda: running.feeding.set_rate(1.0))


class FeedLate(Action):
    """Records whose windows closed long ago."""

    name = "feed-late"
    title = "feed records whose event time is an hour old; all replicas have to treat them alike"
    requires = frozenset({Need.EVENT_TIME})
    takes = frozenset({Part.INPUT})

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Feed them at once."""
        records = running.feeding.late(draw.randrange(*RECORDS))
        return Deed(f"{records} records came an hour late", data={"records": records})


class FeedMalformed(Action):
    """Lines that are no records."""

    name = "feed-malformed"
    title = "offer lines that break the schema or are not JSON; each has to be refused and nothing of it kept"
    requires = frozenset({Need.FED})
    takes = frozenset({Part.INPUT})

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Offer them at once."""
        lines = draw.randrange(*RECORDS)
        accepted = running.feeding.malformed(lines)
        return Deed(
            f"{lines} malformed lines were offered to each journal, {accepted} accepted",
            data={"lines": lines, "accepted": accepted},
        )


ACTIONS: tuple[Action, ...] = (AddLoad(), GoQuiet(), FeedLate(), FeedMalformed())
