"""Settings of the meta controller, read once at its start."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hmas.contracts.control import INITIAL_TOPOLOGY, MAX_VALID_FOR_S, Hints, TopologyName
from hmas.meta.agent.config import LayoutConfig, MetaConfig, RehearsalConfig, RulesConfig
from hmas.meta.agent.selectors.table import check_selector
from hmas.runtime.settings import RuntimeSettings

SELF = "self"  # as HMAS_LLM_URL: the mesh's own model


class MetaSettings(RuntimeSettings):
    """Settings of the meta controller: the selector, its period and its guards."""

    grpc_host: str = Field("127.0.0.1", description="Address on which the gRPC service Meta listens")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Meta service; 0 picks a free one")
    selector: str = Field(
        "auto",
        description="What proposes topologies: rules, bandit, llm (a language model), or several of them with commas "
        "between, which needs HMAS_REHEARSE=on; auto is llm if HMAS_LLM_URL is set and rules otherwise",
    )
    rehearse: Literal["on", "off"] = Field(
        "off",
        description="on: a topology is switched only if a simulation of the last minutes predicts a clear gain; off: a "
        "proposal is applied at once",
    )
    rehearsal_profile: str = Field(
        "",
        description="Profile of the engines that rehearsals simulate: a name, or a file of `hmas calibrate`; empty: "
        "fitted to their measured pace",
    )
    rehearsal_cpu_share: float = Field(
        0.25, gt=0, le=1, description="Share of one core that rehearsals may take on average"
    )
    rehearsal_window_s: float = Field(
        300.0, ge=30, le=3600, description="Seconds of past requests that a rehearsal replays"
    )
    llm_url: str = Field(
        "",
        description="Base URL of the selector's OpenAI-compatible endpoint, such as http://host:8000/v1; self: this "
        "mesh's own API at HMAS_LLM_SELF_URL, which is asked for the model of the pool at hand, at the lowest priority",
    )
    llm_self_url: str = Field(
        "http://127.0.0.1:8000/v1", description="Base URL of this mesh's own API, for HMAS_LLM_URL=self"
    )
    llm_tokens_per_minute: int = Field(
        6000,
        ge=0,
        description="Tokens a minute, of questions and answers, that the selector may take of the mesh's own engines "
        "with HMAS_LLM_URL=self; while they are spent it asks nothing",
    )
    llm_model: str = Field(
        "", description="Name of the selector's language model at HMAS_LLM_URL; empty with self: the pool's own"
    )
    llm_api_key_file: Path | None = Field(None, description="File that holds the API key for HMAS_LLM_URL")
    llm_timeout_s: float = Field(
        10.0, gt=0, description="Seconds that the language model's answer may take; after that the rules decide"
    )
    meta_period_s: float = Field(15.0, gt=0, description="Seconds between two decisions about a pool's topology")
    min_dwell_s: float = Field(30.0, ge=0, description="Least seconds between two switches of a pool's topology")
    usual_topology: TopologyName = Field(
        INITIAL_TOPOLOGY,
        description="Topology with which a pool begins, and that the rules use where the view calls for no other",
    )
    objective: Literal["requests", "tokens"] = Field(
        "requests",
        description="What MaxOnTime maximises: requests that are on time, or their service gain in tokens (ESG)",
    )
    slack_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the slack of the requests before it that MaxOnTime lets a shorter one take by going "
        "first, where work arrives evenly (less where it comes in bursts); 0 dispatches by deadline alone",
    )
    layout: Literal["mixed", "auto", "tags"] = Field(
        "auto",
        description="How requests share a pool's engines: mixed, so that all share all engines, or auto, so that the "
        "controller splits them by TPOT SLO where the measured pace says that more are on time then and most clients "
        "state their SLOs, or tags, so that it also does where perception has to tell them",
    )
    topology_valid_for_s: float = Field(
        15.0, gt=0.5, le=MAX_VALID_FOR_S, description="Seconds for which workers obey a decision if no new one comes"
    )

    @model_validator(mode="after")
    def _llm_is_complete(self) -> "MetaSettings":
        names = [name.strip() for name in self.chosen_selector.split(",")]
        for name in names:
            try:
                check_selector(name)
            except ValueError as error:
                raise ValueError(f"HMAS_SELECTOR: {error}, or auto") from error
        if len(names) > 1 and self.rehearse == "off":
            raise ValueError("several selectors in HMAS_SELECTOR need HMAS_REHEARSE=on, which chooses between them")
        if self.asks_llm and not self.llm_url:
            raise ValueError("HMAS_SELECTOR=llm needs HMAS_LLM_URL, which is empty: set it, or set HMAS_SELECTOR=rules")
        if self.asks_llm and not self.llm_model and self.llm_url != SELF:
            raise ValueError("HMAS_LLM_MODEL is empty: set it to the name of the language model at HMAS_LLM_URL")
        return self

    @property
    def chosen_selector(self) -> str:
        if self.selector != "auto":
            return self.selector
        return "llm" if self.llm_url else "rules"

    @property
    def asks_llm(self) -> bool:
        return "llm" in [name.strip() for name in self.chosen_selector.split(",")]

    def llm_api_key(self) -> str:
        """Returns the API key from `llm_api_key_file`, or "none" if no file is set. Raises OSError if the file cannot
        be read."""
        return self.llm_api_key_file.read_text().strip() if self.llm_api_key_file is not None else "none"

    def layout_config(self) -> LayoutConfig:
        config = LayoutConfig(adaptive=self.layout != "mixed")
        return replace(config, least_stated=0.0) if self.layout == "tags" else config

    def meta_config(self) -> MetaConfig:
        return MetaConfig(
            selector=self.chosen_selector,
            rules=RulesConfig(
                usual=self.usual_topology,
                hints=Hints(by_tokens=self.objective == "tokens", slack_share=self.slack_share),
            ),
            decide_every_s=self.meta_period_s,
            min_dwell_s=self.min_dwell_s,
            ask_timeout_s=self.llm_timeout_s,
            valid_for_s=self.topology_valid_for_s,
            rehearsal=RehearsalConfig(
                enabled=self.rehearse == "on", cpu_share=self.rehearsal_cpu_share, window_s=self.rehearsal_window_s
            ),
            layout=self.layout_config(),
        )
