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
    if store.fact(JOURNALS) is None:
        # A job of an older release has had files.
        begins = wanted and store.head() is None
        store.put_fact_if_absent(JOURNALS, address_of_job(wanted, job, secrets.token_hex(4)) if begins else FILES)
    held = store.fact(JOURNALS) or FILES
    if not wanted and held == FILES:
        return ""
    address = address_of_job(wanted, job, run_of(held)) if wanted and held != FILES else FILES
    if address == FILES or not is_same_place(address, held):
        raise _fixed(job, held)
    if address != held:
        store.set_fact(JOURNALS, address)
    make_letters(store, address)
    return address


def _fixed(job: str, held: str) -> RunError:
    where = "files of its host" if held == FILES else held
    return RunError(
        "LS0618",
        f'job "{job}" was begun with its journals in {where}',
        why="what is on its way between its stages is there, and its dead letters are.",
        hint="set journals in lockstep.toml as it was (brokers may be others), or give Job(...) another name and its "
        "sinks other places.",
    )
