from hypothesis import given
from hypothesis import strategies as st

from hmas.perception.backends.grams import GRAMS, grams, words


def test_words_numbers_and_signs_of_the_instruction_in_lower_case() -> None:
    assert words("Write 3 Poems!") == ["write", "3", "poems", "!"]
    assert "middle" not in words(f"{'head ' * 200} middle {'tail ' * 200}")


def test_pairs_hear_the_order_and_repetition_adds_nothing() -> None:
    assert len(grams("write a poem")) == 5
    assert set(grams("write a poem")) & set(grams("poem a write")) == {*grams("write"), *grams("a"), *grams("poem")}
    assert sorted(grams("ha ha ha")) == sorted(grams("ha ha"))


def test_rows_are_the_same_in_every_process() -> None:
    """They index weights that another process trained."""
    assert sorted(grams("Write a poem")) == [37908, 42748, 43152, 52365, 63435]


@given(st.text())
def test_any_text_gives_rows_of_the_table(text: str) -> None:
    found = grams(text)
    assert all(1 <= row < GRAMS for row in found)
    assert len(set(found)) == len(found)
