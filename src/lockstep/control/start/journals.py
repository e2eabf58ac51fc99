"""Where a job's own journals and its dead letters are, settled before its first replica starts: in files, or topics."""

from __future__ import annotations

import secrets

from lockstep.connect.kafka.journals import address_of_job, is_same_place, run_of
from lockstep.connect.kafka.letters import make_letters
from lockstep.connect.protocols import FILES, JOURNALS
from lockstep.errors import RunError
from lockstep.store.protocols import Store


def settle_journals(store: Store, job: str, wanted: str) -> str:
    """The address of the job's topics, which are made for it alone; empty if its journals are files.

    ``wanted`` is the setting. LS0618 if the job began with another one.
    """
    held, begins = store.fact(JOURNALS), store.head() is None
    if held is None or (begins and not _fits(wanted, job, held)):
        # Nothing was sealed: there is nothing on its way. A job of an older release has had files.
        held = address_of_job(wanted, job, secrets.token_hex(4)) if begins and wanted else FILES
        store.set_fact(JOURNALS, held)
    if not _fits(wanted, job, held):
        raise _fixed(job, held)
    if not wanted:
        return ""
    address = address_of_job(wanted, job, run_of(held))
    if address != held:
        store.set_fact(JOURNALS, address)
    make_letters(store, address)
    return address


def _fits(wanted: str, job: str, held: str) -> bool:
    """Whether what the job has is where it is wanted, by whichever brokers."""
    if not wanted or held == FILES:
        return not wanted and held == FILES
    return is_same_place(address_of_job(wanted, job, run_of(held)), held)


def _fixed(job: str, held: str) -> RunError:
    where = "files of its host" if held == FILES else held
    return RunError(
        "LS0618",
        f'job "{job}" was begun with its journals in {where}',
        why="what is on its way between its stages is there, and its dead letters are.",
        hint="set journals in lockstep.toml as it was (brokers may be others), or give Job(...) another name and its "
        "sinks other places.",
    )
