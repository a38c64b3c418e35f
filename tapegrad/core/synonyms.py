"""PyTorch's names of settings: `t.sum(dim=1, keepdim=True)` means `t.sum(axis=1, keepdims=True)`.

A synonym is followed only where the function means the same in both libraries. Where PyTorch's function of that name gives
another value (`std` divides by n - 1, `max` along a dim is a pair), the call is refused with what to write, for its author
expects PyTorch's value.
"""

from __future__ import annotations

from typing import Any

SYNONYMS = {"dim": "axis", "keepdim": "keepdims"}

# fmt: off
_PAIR = "There it is a pair: write axis=... for the values, and arg{name}(axis=...) for the positions."
_FREEDOM = "There it divides by n - 1: write {name}(axis=..., ddof=1) for that, or {name}(axis=...) to divide by n."
_LOWER = "There it is a pair, and of two entries in the middle the lower: write {name}(axis=...) for their mean."
OTHER_MEANING = {
    "max": _PAIR, "min": _PAIR, "sort": _PAIR, "std": _FREEDOM, "var": _FREEDOM, "median": _LOWER, "nanmedian": _LOWER,
}
"""What PyTorch's function of that name does along a dim, and what to write for it."""
# fmt: on

_TELLING = {"ddof", "correction"}
"""Settings that leave no doubt what is meant."""


def numpys(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings under NumPy's names. Raises TypeError where PyTorch's name would promise another value.

    >>> numpys("sum", {"dim": 1, "keepdim": True})
    {'axis': 1, 'keepdims': True}
    """
    if "unbiased" in settings:
        raise TypeError(
            f"{name}(unbiased=...) is PyTorch's way to ask, but {name} has NumPy's settings here: write ddof=0 for unbiased=False, ddof=1 "
            "for unbiased=True."
        )
    for theirs in SYNONYMS.keys() & settings.keys():
        if theirs == "dim" and name in OTHER_MEANING and not settings.keys() & _TELLING:
            raise TypeError(
                f"{name}(dim=...) is PyTorch's way to ask, but {name} means here what it means in NumPy. "
                + OTHER_MEANING[name].format(name=name)
            )
        if SYNONYMS[theirs] in settings:
            raise TypeError(
                f"{name} was given both {SYNONYMS[theirs]} and {theirs}, two names of one setting: give one."
            )
    return {SYNONYMS.get(key, key): value for key, value in settings.items()}
