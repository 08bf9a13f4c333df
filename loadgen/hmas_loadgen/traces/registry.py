"""The public traces that `hmas load traces fetch` can download, with address, licence and checksum."""

from collections.abc import Mapping
from dataclasses import dataclass

_AZURE = "https://raw.githubusercontent.com/Azure/AzurePublicDataset/b469a113cedca53ddc3bdea71a143dc4b7d8700c/data"
_MOONCAKE = (
    "https://raw.githubusercontent.com/kvcache-ai/Mooncake/3b5a594133958449a1feaf1c9e0fc1b553e34a28/"
    "FAST25-release/traces"
)
_BURSTGPT = "https://raw.githubusercontent.com/HPMLL/BurstGPT/e92f533b6c85ea7f4164fb3d97d1aa2c3edacbc8/data"
_BAILIAN = "https://media.githubusercontent.com/media/alibaba-edu/qwen-bailian-usagetraces-anon/main"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTrace:
    """A trace that can be downloaded. `checksum` is `sha256:<hex>`, or `git:<hex>` for a git blob id (SHA-1 over a
    header and the content), or None if the publisher states none; the SHA-256 of the first download is then kept beside
    the file."""

    name: str
    url: str
    checksum: str | None
    licence: str
    about: str

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


_TRACES = (
    PublicTrace(
        name="azure-2023-code",
        url=f"{_AZURE}/AzureLLMInferenceTrace_code.csv",
        checksum="sha256:54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
        licence="CC-BY-4.0",
        about="Azure coding service, one hour of 2023-11-16",
    ),
    PublicTrace(
        name="azure-2023-conv",
        url=f"{_AZURE}/AzureLLMInferenceTrace_conv.csv",
        checksum="sha256:2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
        licence="CC-BY-4.0",
        about="Azure conversation service, one hour of 2023-11-16",
    ),
    PublicTrace(
        name="azure-2024-code",
        url="https://azurepublicdatasettraces.blob.core.windows.net/azurellminfererencetrace/"
        "AzureLLMInferenceTrace_code_1week.csv",
        checksum=None,
        licence="CC-BY-4.0",
        about="Azure coding service, one week of May 2024",
    ),
    PublicTrace(
        name="azure-2025-multimodal",
        url=f"{_AZURE}/AzureLMMInferenceTrace_multimodal.csv.gz",
        checksum="git:7e2a6719ff42dc50b990ba55ca941ab75290ffcb",
        licence="CC-BY-4.0",
        about="Azure multimodal service, one week of October 2024",
    ),
    PublicTrace(
        name="mooncake-conversation",
        url=f"{_MOONCAKE}/conversation_trace.jsonl",
        checksum="sha256:b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        licence="Apache-2.0",
        about="Kimi conversations with prefix hashes",
    ),
    PublicTrace(
        name="mooncake-toolagent",
        url=f"{_MOONCAKE}/toolagent_trace.jsonl",
        checksum="git:b765599d1e0828b37f68d481563c385d3c11de54",
        licence="Apache-2.0",
        about="Kimi tools and agents with prefix hashes",
    ),
    PublicTrace(
        name="mooncake-synthetic",
        url=f"{_MOONCAKE}/synthetic_trace.jsonl",
        checksum="sha256:bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
        licence="Apache-2.0",
        about="Mooncake's synthetic mix with prefix hashes",
    ),
    PublicTrace(
        name="burstgpt",
        url=f"{_BURSTGPT}/BurstGPT_1.csv",
        checksum="git:f95dd2c84454b067fdd0973858c55ecfe31bdad7",
        licence="CC-BY-4.0",
        about="ChatGPT and GPT-4 on a campus, two months, with failures",
    ),
    PublicTrace(
        name="bailian-coder",
        url=f"{_BAILIAN}/qwen_coder_blksz_16.jsonl",
        checksum="sha256:3d74974cebb7bccb69b1ca6ea210a44d9a3033443c0271ed015327284dea1aff",
        licence="Apache-2.0",
        about="Qwen coder on Aliyun Bailian with prefix hashes",
    ),
    PublicTrace(
        name="bailian-thinking",
        url=f"{_BAILIAN}/qwen_thinking_blksz_16.jsonl",
        checksum="sha256:41ac36d9d1b54d084eeb6b05e9d142ba9d02f8bf79cfc9fff418d8ab7cdee906",
        licence="Apache-2.0",
        about="Qwen thinking model on Aliyun Bailian with prefix hashes",
    ),
)
PUBLIC_TRACES: Mapping[str, PublicTrace] = {trace.name: trace for trace in _TRACES}
