"""Settings of the meta controller, read once at its start."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hmas.contracts.control import Hints
from hmas.meta.agent.config import MetaConfig, RulesConfig
from hmas.runtime.settings import RuntimeSettings


class MetaSettings(RuntimeSettings):
    """Selector, cadence and guards."""

    grpc_host: str = Field("127.0.0.1", description="Address of the Meta service")
    grpc_port: int = Field(0, ge=0, le=65535, description="Port of the Meta service; 0 picks a free one")
    selector: Literal["auto", "rules", "llm"] = Field(
        "auto", description="Who chooses the topology; auto: the LLM if it has a URL, else the rules"
    )
    llm_url: str = Field("", description="Base URL of an OpenAI-compatible endpoint, e.g. http://host:8000/v1")
    llm_model: str = Field("", description="Model name at that endpoint")
    llm_api_key_file: Path | None = Field(None, description="File that holds the endpoint's API key")
    llm_timeout_s: float = Field(10.0, gt=0, description="Seconds an answer may take; then the rules decide")
    meta_period_s: float = Field(15.0, gt=0, description="Between two decisions, seconds")
    min_dwell_s: float = Field(30.0, ge=0, description="Least time between two switches, seconds")
    objective: Literal["requests", "tokens"] = Field(
        "requests", description="What MaxOnTime keeps on time: the most requests, or the most tokens (ESG)"
    )
    topology_valid_for_s: float = Field(15.0, gt=0.5, description="How long a decision holds without a new one")

    @model_validator(mode="after")
    def _llm_is_complete(self) -> "MetaSettings":
        if self.selector == "llm" and not self.llm_url:
            raise ValueError("the llm selector needs HMAS_LLM_URL; or set HMAS_SELECTOR=rules")
        if self.chosen_selector == "llm" and not self.llm_model:
            raise ValueError("the llm selector needs HMAS_LLM_MODEL, the model's name at HMAS_LLM_URL")
        return self

    @property
    def chosen_selector(self) -> str:
        if self.selector != "auto":
            return self.selector
        return "llm" if self.llm_url else "rules"

    def llm_api_key(self) -> str:
        """Raises OSError if the file cannot be read."""
        return self.llm_api_key_file.read_text().strip() if self.llm_api_key_file is not None else "none"

    def meta_config(self) -> MetaConfig:
        return MetaConfig(
            selector=self.chosen_selector,
            rules=RulesConfig(hints=Hints(by_tokens=self.objective == "tokens")),
            decide_every_s=self.meta_period_s,
            min_dwell_s=self.min_dwell_s,
            ask_timeout_s=self.llm_timeout_s,
            valid_for_s=self.topology_valid_for_s,
        )
