"""How urgent a client may say in a body that its request is: by a priority, or by one of OpenAI's service tiers."""

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
