"""What a received value may be: every message is checked here, by its type, before an agent sees it.

A message that breaks one rule is dropped as a whole. Integers are counts from 0 to 2^40 and floats are finite, at least
0 and at most 10^12, unless a rule below says otherwise; names have at most MAX_NAME_CHARS characters, and lists at most
MAX_ITEMS items. Sums of allowed counts fit into 64 bits, so that a view that is made of them can be sent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from math import inf
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from hmas.contracts.control import MAX_CUTS, MAX_EPOCH, MAX_VALID_FOR_S, EngineControl, FenceTable, Hints, Layout, Split
from hmas.contracts.engine_kind import MAX_KINDS
from hmas.contracts.execution import Progress
from hmas.contracts.job import PrefixChain
from hmas.contracts.request import Annotation
from hmas.contracts.use import HeldPrefixes
from hmas.contracts.views import MAX_VIEW_CHARS

MAX_COUNT = 2**40
MAX_NUMBER = 1e12
MAX_SUM = 2**62
MAX_RATIO = 1e100
MAX_NAME_CHARS = 512
MAX_TEXT_CHARS = 8192
MAX_ITEMS = 2**16
MAX_TOLD_CHARS = 60  # of a wrong value, in an error
MAX_FEW = 1024  # engines of a worker, names of a view and the like


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`; `above` excludes `low` itself. NaN is in no range."""

    low: float
    high: float
    above: bool = False

    def source(self, value: str) -> str:
        return f"{self.low!r} {'<' if self.above else '<='} {value} <= {self.high!r}"

    def __str__(self) -> str:
        return f"above {self.low} and at most {self.high}" if self.above else f"from {self.low} to {self.high}"


COUNT = Range(0, MAX_COUNT)
NUMBER = Range(0.0, MAX_NUMBER)
SIGNED = Range(-MAX_NUMBER, MAX_NUMBER)
RATIO = Range(-MAX_RATIO, MAX_RATIO)
DIGEST = Range(0, 2**64 - 1)
SUM = Range(0, MAX_SUM)
TOKENS = Range(0, 2**32)  # of one request; above what engines and clients may name, so that a prediction fits too
# Made of many allowed numbers, and therefore larger: no peer's report may keep a view from arriving.
DERIVED = frozenset({"VShort", "VLong", "ShareView", "DemandView", "Tail"})
DURATION_S = Range(-60.0, 1e9)  # of two instants on clocks of which one was converted: a little below 0 as well

# By the name of the field; one message's field of that name may differ.
RANGES: Mapping[str, Range] = {
    "epoch": Range(0, MAX_EPOCH - 1),
    "seq": Range(0, 2**62),
    "nodes": DIGEST,
    "node": DIGEST,
    "thread": DIGEST,
    "turn": DIGEST,
    "grant": Range(0, 2**53),
    "priority": Range(-(2**31), 2**31),
    "b_saturated": Range(-1, 1),
    "prompt_tokens": TOKENS,
    "output_tokens": TOKENS,
    "output_tokens_p90": TOKENS,
    "predicted_output_tokens": TOKENS,
    "predicted_output_tokens_p90": TOKENS,
    "upper_output_tokens": TOKENS,
    "max_tokens": TOKENS,
    "cached_tokens": TOKENS,
    "promised_tokens": TOKENS,
    "valid_for_s": Range(0.0, MAX_VALID_FOR_S, above=True),
    "weight": Range(1e-6, 1e6),
    "utility": Range(1e-6, 1e6),
    "importance": Range(0.0, 1.0),
    "confidence": Range(0.0, 1.0),
    "stated_share": Range(0.0, 1.0),
    "kv_usage": Range(0.0, 2.0),  # some engines count what they are about to evict
    "cuts_s": Range(0.0, 1e9, above=True),
    "fast_weight": Range(0.0, 1.0),
    "slack_share": Range(0.0, 1.0),
    "fast_slots": Range(0.0, 1.0, above=True),
    "quantum_tokens": Range(1, MAX_COUNT),
    "ttft_slo_s": Range(0.0, 1e9, above=True),
    "needed_tpot_s": Range(0.0, 1e9),
    "tpot_slo_s": Range(0.0, 1e9, above=True),
    "Slo.ttft_s": Range(0.0, 1e9, above=True),
    "Slo.tpot_s": Range(0.0, 1e9, above=True),
    "Slo.ttlt_s": Range(0.0, 1e9, above=True),
    "left_s": SIGNED,  # of a job: below 0 once it is late
    "future_prompt_tokens": TOKENS,
    "future_output_tokens": TOKENS,
    "arrival_s": SIGNED,  # instants, on the clock of the host that decodes
    "granted_s": SIGNED,
    "first_token_s": SIGNED,
    "HeldPrefixes.tokens": TOKENS,
    "tokens": SIGNED,  # of a tenant: fall when a prompt was estimated too long
    "requests_left": SIGNED,  # negative after an overdraft
    "tokens_left": SIGNED,
    "predicted_gain": Range(-1.0, 1.0),
    "observed_gain": Range(-1.0, 1.0),
    "was": Range(0.0, 1.0),
    "played": Range(0.0, 1.0),
    "scheduled": Range(0.0, 1.0),
    "SchedulingGain.low": Range(0.0, 1.0),
    "SchedulingGain.high": Range(0.0, 1.0),
    "ExpectedShare.share": Range(0.0, 1.0),
    "ExpectedShare.low": Range(-1.0, 1.0),
    "ExpectedShare.high": Range(0.0, 2.0),
    "ExpectedShare.before": Range(0.0, 1.0),
    "PlanDecision.bound": Range(0.0, 1.0),
    "due_s": DURATION_S,
    "slack_s": SIGNED,
    "JobRow.prompt_tokens": COUNT,  # of all its calls
    "JobRow.cached_tokens": COUNT,
    "JobRow.output_tokens": COUNT,
    "factor": TOKENS,  # on a predicted length of at least one token
    "shared": TOKENS,
    "rolling_upper": SIGNED,
    "urgency": Range(-inf, inf),  # a rank
    "age_s": DURATION_S,
    "acted_age_s": DURATION_S,
    "waited_s": DURATION_S,
    "run_s": DURATION_S,
    "queued_s": DURATION_S,
    "Cost.ttft_s": NUMBER,
    "Cost.tpot_s": NUMBER,
    "ttft_s": DURATION_S,
    "prefill_s": DURATION_S,
    "engine_wait_s": DURATION_S,
    "tpot_s": DURATION_S,
    "last_token_s": DURATION_S,
    "ShareView.weight": Range(1e-6, 1e6),
    "VShort.kv_usage": Range(0.0, 2.0),
    "DemandView.tpot_slo_s": Range(0.0, 1e12, above=True),
    "EngineView.goodput_tokens_per_s": RATIO,
    "EngineView.preemptions_per_s": RATIO,
}
STAMPS = frozenset({"epoch", "seq", "valid_for_s"})  # of a view as of everything else
TEXTS: Mapping[str, int] = {
    "message": MAX_TEXT_CHARS,
    "reason": MAX_TEXT_CHARS,
    "decision": MAX_TEXT_CHARS,
    "address": MAX_TEXT_CHARS,
    "endpoint": MAX_TEXT_CHARS,
    "view_json": MAX_VIEW_CHARS,
    "text": MAX_VIEW_CHARS,  # head and tail of a prompt
}
FEW = frozenset({
    "engines", "aliases", "paths", "adapters", "buckets", "tables", "shares", "prompt_histogram", "output_histogram",
    "tasks", "tenants", "nodes", "ends", "cuts_s", "demands", "paces", "plans", "groups", "steps", "leaving",
    "expected", "ordered", "acted_age_s", "before", "types",
})  # fmt: skip
# What the fields of one message must be to one another, in words and as a Python expression of the message `v`.
RELATIONS: Mapping[type, tuple[str, str]] = {
    Annotation: (f"1 to {MAX_KINDS} costs", f"1 <= len(v.costs) <= {MAX_KINDS}"),
    EngineControl: ("b_min <= b_max and u_low <= u_high", "v.b_min <= v.b_max and v.u_low <= v.u_high"),
    Hints: ("alpha_low <= alpha_high", "v.alpha_low <= v.alpha_high"),
    Split: (
        f"at most {MAX_CUTS} ascending cuts, and an engine or more for each class",
        f"len(v.cuts_s) <= {MAX_CUTS} and all(a < b for a, b in zip(v.cuts_s, v.cuts_s[1:]))"
        " and len(v.engines) == (len(v.cuts_s) + 1 if v.cuts_s else 0) and all(n >= 1 for n in v.engines)",
    ),
    Layout: (
        f"at most {MAX_CUTS} ascending cuts, and engines of their classes",
        f"len(v.cuts_s) <= {MAX_CUTS} and all(a < b for a, b in zip(v.cuts_s, v.cuts_s[1:]))"
        " and all(e.pace_class <= len(v.cuts_s) for e in v.engines)",
    ),
    Progress: ("as many output_tokens as request_ids", "len(v.request_ids) == len(v.output_tokens)"),
    PrefixChain: ("as many ends as nodes", "len(v.nodes) == len(v.ends)"),
    HeldPrefixes: ("as many tokens as nodes", "len(v.nodes) == len(v.tokens)"),
    FenceTable: (
        "buckets that ascend by prompt_upto",
        "all(a.prompt_upto < b.prompt_upto for a, b in zip(v.buckets, v.buckets[1:]))",
    ),
}


def range_of(cls: type, name: str, kind: type) -> Range:
    """Returns the range of a numeric field, whose type is `kind`."""
    special = RANGES.get(f"{cls.__name__}.{name}")
    if cls.__name__ in DERIVED and name not in STAMPS:
        return special or (SUM if kind is int else RATIO)
    return special or RANGES.get(name) or (COUNT if kind is int else NUMBER)


def most_chars(name: str) -> int:
    return TEXTS.get(name, MAX_NAME_CHARS)


def most_items(name: str) -> int:
    return MAX_FEW if name in FEW else MAX_ITEMS


def _rules(cls: type, hints: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the rules of one message as (field, Python expression of the message `v`, the same in words). The field
    is "" where the rule is about several."""
    rules = []
    for name, hint in hints.items():
        value, optional = f"v.{name}", NoneType in get_args(hint)
        kind = next(each for each in get_args(hint) if each is not NoneType) if optional else hint
        if get_origin(kind) is tuple:
            most, kind, value = most_items(name), get_args(kind)[0], "x"
            rules.append((name, f"len(v.{name}) <= {most}", f"at most {most} items"))
        if kind is int or kind is float:
            allowed = range_of(cls, name, kind)
            source, words = allowed.source(value), str(allowed)
        elif kind is str:
            source, words = f"len({value}) <= {most_chars(name)}", f"at most {most_chars(name)} characters"
        else:
            continue  # a flag, or a message with rules of its own
        if value == "x":
            source = f"all({source} for x in v.{name})"
        rules.append((name, f"(v.{name} is None or {source})" if optional else source, words))
    if cls in RELATIONS:
        words, source = RELATIONS[cls]
        rules.append(("", source, words))
    return rules


def condition(cls: type, hints: Mapping[str, Any]) -> str:
    """Returns the Python expression that is true of an allowed message `v`; "" if every message is allowed. `hints` are
    the types of the fields of `cls`."""
    return " and ".join(source for _, source, _ in _rules(cls, hints))


@cache
def is_allowed(cls: type) -> Callable[[Any], bool]:
    """Returns the function that tells whether an instance of the dataclass `cls` is allowed; what it holds of other
    dataclasses is not looked at."""
    source = condition(cls, {f.name: get_type_hints(cls)[f.name] for f in fields(cls)})
    allowed: Callable[[Any], bool] = eval(f"lambda v: {source or True}", {"inf": inf})
    return allowed


def offence(cls: type, value: Any) -> str:
    """Returns in words which rule a message breaks."""
    for name, source, words in _rules(cls, get_type_hints(cls)):
        if not eval(source, {"v": value, "inf": inf}):
            if not name:
                return f"{cls.__name__} must have {words}"
            return f"{cls.__name__}.{name} must be {words}, not {repr(getattr(value, name))[:MAX_TOLD_CHARS]}"
    raise AssertionError(f"{cls.__name__}: no rule is broken")
