"""Checks of what a user wrote for a source or a sink: LS0501 with what would be allowed."""

from __future__ import annotations

from lockstep.errors import ConnectError


def check(holds: bool, fact: str, why: str, hint: str = "") -> None:
    """LS0501 unless it holds."""
    if not holds:
        raise ConnectError("LS0501", fact, why=why, hint=hint)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """LS0501 unless the value is one of these."""
    check(value in choices, f'{name}="{value}" is not known here', f"it is one of: {', '.join(choices)}.")
