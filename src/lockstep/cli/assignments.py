"""``key=value`` and ``a:b`` as people type them on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.errors import EnvironmentError_


def assignments(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """The pairs in ``["key=value", ...]``; the last one wins.

    >>> assignments("--set", ["epoch_interval_s=0.5", "on_divergence = stop"])
    {'epoch_interval_s': '0.5', 'on_divergence': 'stop'}
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise EnvironmentError_(
                "LS0007",
                f"{option} {text} is not KEY=VALUE",
                why="it takes a name, an equals sign and a value.",
                hint=f"write it like {option} replicas=2.",
            )
        pairs[key.strip()] = value.strip()
    return pairs


def plain_value(text: str) -> int | float | str:
    """A number if ``text`` is one, else the text: "0.5" is half a second and not a duration without a unit.

    >>> plain_value("8"), plain_value("0.5"), plain_value("200 ms")
    (8, 0.5, '200 ms')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def epoch_range(text: str | None) -> tuple[int, int | None]:
    """First and last epoch, inclusive, of ``"3:7"``, ``"3:"``, ``":7"`` or ``"3"``; None for the last: no end.

    >>> epoch_range("3:7"), epoch_range("3:"), epoch_range(":7"), epoch_range("5"), epoch_range(None)
    ((3, 7), (3, None), (0, 7), (5, 5), (0, None))
    """
    if text is None:
        return 0, None
    first, colon, last = text.partition(":")
    try:
        if not colon:
            return int(first), int(first)
        span = int(first) if first else 0, int(last) if last else None
    except ValueError:
        span = (0, -1)
    if span[0] < 0 or (span[1] is not None and span[1] < span[0]):
        raise EnvironmentError_(
            "LS0007",
            f"--epochs {text} is not a range",
            why="it takes two epoch numbers, the first not above the last.",
            hint="write it like --epochs 10:20 (both included), --epochs 10: or --epochs 10.",
        )
    return span
