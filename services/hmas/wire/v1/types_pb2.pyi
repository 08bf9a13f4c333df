from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Slo(_message.Message):
    __slots__ = ("ttft_s", "tpot_s", "ttlt_s", "whole")
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    TPOT_S_FIELD_NUMBER: _ClassVar[int]
    TTLT_S_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    ttft_s: float
    tpot_s: float
    ttlt_s: float
    whole: bool
    def __init__(self, ttft_s: _Optional[float] = ..., tpot_s: _Optional[float] = ..., ttlt_s: _Optional[float] = ..., whole: _Optional[bool] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("task", "slo", "output_tokens", "output_tokens_p90", "confidence", "source", "version")
    TASK_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_P90_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    task: str
    slo: Slo
    output_tokens: float
    output_tokens_p90: float
    confidence: float
    source: str
    version: str
    def __init__(self, task: _Optional[str] = ..., slo: _Optional[_Union[Slo, _Mapping]] = ..., output_tokens: _Optional[float] = ..., output_tokens_p90: _Optional[float] = ..., confidence: _Optional[float] = ..., source: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("ttft_s", "tpot_s")
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    TPOT_S_FIELD_NUMBER: _ClassVar[int]
    ttft_s: float
    tpot_s: float
    def __init__(self, ttft_s: _Optional[float] = ..., tpot_s: _Optional[float] = ...) -> None: ...

class PrefixChain(_message.Message):
    __slots__ = ("nodes", "ends", "whole", "thread", "turn")
    NODES_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    ends: _containers.RepeatedScalarFieldContainer[int]
    whole: bool
    thread: int
    turn: int
    def __init__(self, nodes: _Optional[_Iterable[int]] = ..., ends: _Optional[_Iterable[int]] = ..., whole: _Optional[bool] = ..., thread: _Optional[int] = ..., turn: _Optional[int] = ...) -> None: ...

class JobFacts(_message.Message):
    __slots__ = ("job", "index", "left_s", "output_tokens", "output_tokens_p90", "future_stages", "future_prompt_tokens", "future_output_tokens", "future_outside_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_P90_FIELD_NUMBER: _ClassVar[int]
    FUTURE_STAGES_FIELD_NUMBER: _ClassVar[int]
    FUTURE_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FUTURE_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FUTURE_OUTSIDE_S_FIELD_NUMBER: _ClassVar[int]
    job: str
    index: int
    left_s: float
    output_tokens: float
    output_tokens_p90: float
    future_stages: float
    future_prompt_tokens: float
    future_output_tokens: float
    future_outside_s: float
    def __init__(self, job: _Optional[str] = ..., index: _Optional[int] = ..., left_s: _Optional[float] = ..., output_tokens: _Optional[float] = ..., output_tokens_p90: _Optional[float] = ..., future_stages: _Optional[float] = ..., future_prompt_tokens: _Optional[float] = ..., future_output_tokens: _Optional[float] = ..., future_outside_s: _Optional[float] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "model", "tenant", "flow", "prompt_tokens", "max_tokens", "stream", "slo", "slo_stated", "priority", "weight", "importance", "arrival_s", "relegate", "prefix", "job")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    SLO_STATED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_S_FIELD_NUMBER: _ClassVar[int]
    RELEGATE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    tenant: str
    flow: str
    prompt_tokens: int
    max_tokens: int
    stream: bool
    slo: Slo
    slo_stated: bool
    priority: int
    weight: float
    importance: float
    arrival_s: float
    relegate: bool
    prefix: PrefixChain
    job: JobFacts
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ..., flow: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., stream: _Optional[bool] = ..., slo: _Optional[_Union[Slo, _Mapping]] = ..., slo_stated: _Optional[bool] = ..., priority: _Optional[int] = ..., weight: _Optional[float] = ..., importance: _Optional[float] = ..., arrival_s: _Optional[float] = ..., relegate: _Optional[bool] = ..., prefix: _Optional[_Union[PrefixChain, _Mapping]] = ..., job: _Optional[_Union[JobFacts, _Mapping]] = ...) -> None: ...

class EngineKind(_message.Message):
    __slots__ = ("model", "hardware")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    model: str
    hardware: str
    def __init__(self, model: _Optional[str] = ..., hardware: _Optional[str] = ...) -> None: ...

class KindCost(_message.Message):
    __slots__ = ("kind", "cost")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    kind: EngineKind
    cost: Cost
    def __init__(self, kind: _Optional[_Union[EngineKind, _Mapping]] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ...) -> None: ...

class Annotation(_message.Message):
    __slots__ = ("tags", "utility", "costs")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    UTILITY_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    tags: Tags
    utility: float
    costs: _containers.RepeatedCompositeFieldContainer[KindCost]
    def __init__(self, tags: _Optional[_Union[Tags, _Mapping]] = ..., utility: _Optional[float] = ..., costs: _Optional[_Iterable[_Union[KindCost, _Mapping]]] = ...) -> None: ...

class Hints(_message.Message):
    __slots__ = ("lane_gate_s", "fast_weight", "quantum_tokens", "by_tokens", "alpha_low", "alpha_high", "slack_share", "fast_slots")
    LANE_GATE_S_FIELD_NUMBER: _ClassVar[int]
    FAST_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ALPHA_LOW_FIELD_NUMBER: _ClassVar[int]
    ALPHA_HIGH_FIELD_NUMBER: _ClassVar[int]
    SLACK_SHARE_FIELD_NUMBER: _ClassVar[int]
    FAST_SLOTS_FIELD_NUMBER: _ClassVar[int]
    lane_gate_s: float
    fast_weight: float
    quantum_tokens: int
    by_tokens: bool
    alpha_low: float
    alpha_high: float
    slack_share: float
    fast_slots: float
    def __init__(self, lane_gate_s: _Optional[float] = ..., fast_weight: _Optional[float] = ..., quantum_tokens: _Optional[int] = ..., by_tokens: _Optional[bool] = ..., alpha_low: _Optional[float] = ..., alpha_high: _Optional[float] = ..., slack_share: _Optional[float] = ..., fast_slots: _Optional[float] = ...) -> None: ...

class EngineClass(_message.Message):
    __slots__ = ("place", "pace_class")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    PACE_CLASS_FIELD_NUMBER: _ClassVar[int]
    place: str
    pace_class: int
    def __init__(self, place: _Optional[str] = ..., pace_class: _Optional[int] = ...) -> None: ...

class Layout(_message.Message):
    __slots__ = ("cuts_s", "engines")
    CUTS_S_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    cuts_s: _containers.RepeatedScalarFieldContainer[float]
    engines: _containers.RepeatedCompositeFieldContainer[EngineClass]
    def __init__(self, cuts_s: _Optional[_Iterable[float]] = ..., engines: _Optional[_Iterable[_Union[EngineClass, _Mapping]]] = ...) -> None: ...
