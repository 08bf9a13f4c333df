"""A small causal LM with random weights, and a tokenizer trained on the prompts at hand: what the generative path is
tried with where no base model can be had."""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PREFIX = "random:"
VOCABULARY = 2048
HEAD_SIZE = 64  # the engines' attention kernels know it
CONTEXT = 16_384
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def is_random(base: str) -> bool:
    return base.startswith(PREFIX)


def write_random_base(base: str, texts: Iterable[str], seed: int, folder: Path) -> None:
    """Writes a Qwen3 of the size that `base` states (`random:128x2`: hidden size and layers) with its tokenizer.

    Raises ValueError if the size cannot be read or is not a multiple of the heads' size.
    """
    size = re.fullmatch(rf"{PREFIX}(\d+)x(\d+)", base)
    if size is None or not int(size[2]) or not int(size[1]) or int(size[1]) % HEAD_SIZE:
        raise ValueError(
            f"{base!r} states no size: write random:WIDTHxLAYERS, as in random:128x2; "
            f"the width is a multiple of {HEAD_SIZE}"
        )
    width, layers = int(size[1]), int(size[2])
    tokenizer = _tokenizer(texts)
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // HEAD_SIZE,
        num_key_value_heads=width // HEAD_SIZE,
        head_dim=HEAD_SIZE,
        max_position_embeddings=CONTEXT,
        max_window_layers=layers,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(str(folder))


def _tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose tokens may hold several words: the instruction, the same in every prompt, becomes a few."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=PAD, model_max_length=CONTEXT)
    tokenizer.chat_template = TEMPLATE
    return tokenizer
