"""Writes a tiny checkpoint with random weights: Qwen3's architecture, a byte-level BPE tokenizer, a chat template.

Run by an engine's own Python (it needs torch and transformers): `python tiny_model.py OUT [HIDDEN LAYERS]`. Nothing is
downloaded. A word of the load generator is one token, and of its typed prompts about four bytes are, as it is for the
mesh's estimate.
"""

import json
import sys
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

from hmas_loadgen.typed import typed_prompts
from hmas_loadgen.words import WORDS

HIDDEN, LAYERS, HEADS, HEAD_SIZE, CONTEXT = 128, 2, 4, 64, 16_384
VOCABULARY = 955  # so many that a trace of typed prompts has as many tokens as are estimated
TYPED = 400  # prompts of the types in turn, of 20 to 600 tokens
WORDS_WEIGHT = 5000  # so often that each word becomes a token before anything else does
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(out: Path) -> tuple[int, int, int]:
    """Trained on the load generator's words and typed prompts and the standard library's sources; returns the
    vocabulary's size, and the ids of END and PAD."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    paths = sorted(Path(json.__file__).parent.parent.glob("a*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    texts += [" " + " ".join(WORDS)] * WORDS_WEIGHT
    draw, types = Random("tokenizer"), list(typed_prompts().frames)
    texts += [typed_prompts().text(types[i % len(types)], draw.randint(20, 600), 100, draw) for i in range(TYPED)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "chat_template": TEMPLATE,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    assert end is not None
    assert pad is not None
    return tokenizer.get_vocab_size(), end, pad


def main() -> None:
    out = Path(sys.argv[1])
    hidden, layers = map(int, sys.argv[2:4] or (HIDDEN, LAYERS))
    out.mkdir(parents=True, exist_ok=True)
    vocabulary, end, pad = write_tokenizer(out)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        head_dim=HEAD_SIZE,
        max_position_embeddings=CONTEXT,
        max_window_layers=layers,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(out)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {vocabulary} tokens")


if __name__ == "__main__":
    main()
