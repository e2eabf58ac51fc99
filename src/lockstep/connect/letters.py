"""The dead letters of a job, wherever they are: in a journal of this host, or in a topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lockstep.connect.protocols import FILES, JOURNALS, Place
from lockstep.store.dead_letters import DeadLetters, DeadLetterWriter
from lockstep.store.protocols import Facts


def dead_letters(home: Path, job: str, facts: Facts) -> DeadLetters:
    """Those of a job, as its store says where they are."""
    address = facts.fact(JOURNALS) or FILES
    if address == FILES:
        return DeadLetters(home, job, facts)
    from lockstep.connect.kafka.letters import TopicLetters

    return DeadLetters(home, job, facts, TopicLetters(address))


def letter_writer(place: Place, readings: Mapping[str, str] | None = None) -> DeadLetterWriter:
    """What sets records aside; ``readings`` says how each source is read, for those that functions could not take."""
    if not place.journals:
        return DeadLetterWriter(str(place.home), place.job, readings or {})
    from lockstep.connect.kafka.letters import TopicLetterWriter

    return TopicLetterWriter(str(place.home), place.job, readings or {}, place.journals)
