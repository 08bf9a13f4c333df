"""Prints, as JSON, what engines count in what stands as JSON on standard input: Mistral's tokenizer in chats and
tools, and Qwen2-Audio, made of its configuration alone, in audio of so many seconds. Run by an engine's own Python."""

import json
import sys
from pathlib import Path

import mistral_common
import numpy as np
import torch
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from transformers import Qwen2AudioEncoder, Qwen2AudioEncoderConfig, WhisperFeatureExtractor

TEKKEN = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
RATE = 16_000


def main() -> None:
    asked = json.load(sys.stdin)
    tokenizer = MistralTokenizer.from_file(str(TEKKEN))
    chats = [ChatCompletionRequest.from_openai(**chat) for chat in asked["chats"]]
    small = Qwen2AudioEncoderConfig(d_model=8, encoder_layers=1, encoder_attention_heads=1, encoder_ffn_dim=8)
    encoder, features = Qwen2AudioEncoder(small), WhisperFeatureExtractor(feature_size=128)

    def heard(seconds: float) -> int:
        sound = np.zeros(round(seconds * RATE), dtype=np.float32)
        made = features(sound, sampling_rate=RATE, return_attention_mask=True, padding="max_length")
        frames = torch.tensor(made["attention_mask"]).sum(-1)
        return int(encoder._get_feat_extract_output_lengths(frames)[1])

    counted = [len(tokenizer.encode_chat_completion(chat).tokens) for chat in chats]
    print(json.dumps({"chats": counted, "audio": [heard(seconds) for seconds in asked["audio"]]}))


if __name__ == "__main__":
    main()
