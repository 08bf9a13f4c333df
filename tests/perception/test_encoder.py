import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hmas.perception.backends.encoder import PromptEncoder, padded
from hmas.perception.backends.model import ARTEFACTS, TOKENIZER_FILE


@pytest.fixture(scope="module")
def library() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(ARTEFACTS / TOKENIZER_FILE))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.fixture(scope="module")
def encoder() -> PromptEncoder:
    return PromptEncoder(ARTEFACTS / TOKENIZER_FILE, 400, 200)


@given(st.text(st.characters(max_codepoint=127), max_size=300) | st.text(max_size=60))
@example("[CLS] a[SEP]b [UNK] c\x00d\x0be\tf\x1cg\x7fh")
@example("antidisestablishmentarianism ##ing it's 3.14 " + "x" * 120)
@example("Straße ÀÉ ſ 翻译 İstanbul")
def test_word_pieces_are_the_library_s(library: Tokenizer, encoder: PromptEncoder, text: str) -> None:
    assert encoder.ids(text)[1:-1] == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("words", [8, 500])
def test_without_a_tail_the_head_alone_is_read(encoder: PromptEncoder, words: int) -> None:
    head = PromptEncoder(ARTEFACTS / TOKENIZER_FILE, 4, 0)
    text = "plain words of a long prompt and more " * (words // 8)
    assert head.ids(text) == encoder.ids(text)[:5] + encoder.ids(text)[-1:]
    assert len(head.ids(text)) == head.width


def test_rows_are_filled_up_to_the_longest() -> None:
    assert padded([[5, 6, 7], [], [8]]).tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert padded([[]]).shape == (1, 1)  # no axis of length nought reaches the graph
