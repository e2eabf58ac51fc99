"""All actions there are, and finding them by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from lockstep.chaos import actions
from lockstep.chaos.vocabulary import Action
from lockstep.errors import RunError


def all_actions() -> tuple[Action, ...]:
    """Every action, by subject.

    >>> "kill-driver" in [action.name for action in all_actions()]
    True
    """
    subjects = sorted(found.name for found in iter_modules(actions.__path__))
    modules = [import_module(f"{actions.__name__}.{subject}") for subject in subjects]
    return tuple(action for module in modules for action in getattr(module, "ACTIONS", ()))


def chosen(names: Sequence[str]) -> tuple[Action, ...]:
    """The actions of these names, all without any; LS0651 for one that there is not."""
    known = {action.name: action for action in all_actions()}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            raise RunError(
                "LS0651",
                f'there is no action "{name}"',
                why=f"there are: {', '.join(known)}.",
                hint=f"did you mean {' or '.join(near)}?" if near else "`lockstep chaos list` says what each does.",
            )
    return tuple(action for name, action in known.items() if not names or name in names)
