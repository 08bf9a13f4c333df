"""How urgent a client may say in a body that its request is: by a priority, or by one of OpenAI's service tiers."""

import re
from enum import StrEnum

PRIORITY_LIMIT = 2**31


class ServiceTier(StrEnum):
    """OpenAI's service tiers, as far as they differ here. `flex` is served when there is room: it waits longer and
    comes after everything else. `priority` is the most urgent that the tenant may ask for."""

    FLEX = "flex"
    DEFAULT = "default"
    PRIORITY = "priority"


# What a body may name; the last three are names of OpenAI and Anthropic for what is the default here.
TIER_NAMES = {tier.value: tier for tier in ServiceTier} | dict.fromkeys(
    ("auto", "scale", "standard_only"), ServiceTier.DEFAULT
)

_NULL = re.compile(rb'"service_tier": ?null')  # no text holds it, because its quotes are escaped there
_BEGINNINGS = (b"{", b"data: {")


def with_service_tier(data: bytes, tier: ServiceTier) -> bytes:
    """Returns an answer, or the beginning of a stream, whose object, or first chunk, names the tier as OpenAI's does:
    in the place of an engine's `null`, or before all else. What begins otherwise stays as it is."""
    for beginning in _BEGINNINGS:
        if data.startswith(beginning):
            first, end, rest = data.partition(b"\n") if beginning != b"{" else (data, b"", b"")
            named = b'"service_tier":"%b"' % tier.value.encode()
            told, count = _NULL.subn(named, first, 1)
            if not count and b'"service_tier"' in first:
                return data  # the engine has named its own
            if not count:
                comma = b"" if first[len(beginning) : len(beginning) + 1] == b"}" else b","
                told = beginning + named + comma + first[len(beginning) :]
            return told + end + rest
    return data
