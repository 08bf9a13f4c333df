"""What changed between two views of a page, as a JSON Merge Patch (RFC 7396): an object merges, null deletes a key, and
anything else replaces. Views hold no null of their own."""

from collections.abc import Mapping
from typing import Any


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the patch that makes `new` of `old`; empty if they are equal."""
    patch: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := diff(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def merge(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a browser holds after `patch`. It does in Python what `static/stream.js` does."""
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            before = merged.get(key)
            merged[key] = merge(before if isinstance(before, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged
