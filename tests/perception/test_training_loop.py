import numpy as np
import pytest

from hmas.perception.backends.encoder import padded
from hmas.perception.backends.grams import grams
from hmas.perception.backends.inputs import NUMBERS

pytest.importorskip("torch", reason="needs the extra `train`")

from hmas.perception.training.loop import Arrays, TrainingRecipe, train_task
from hmas.perception.training.network import HIDDEN, NEVER_SEEN, TASKS

FEW = TrainingRecipe(task_epochs=1, shares=(1.0, 1.0, 1.0))


def prompts(texts: list[str]) -> Arrays:
    """As the heads see them, encoder and numbers silent."""
    return Arrays(
        np.zeros((len(texts), 3 * HIDDEN), np.float32),
        np.zeros((len(texts), NUMBERS), np.float32),
        padded([grams(text) for text in texts]),
    )


def test_words_decide_where_encoder_and_rules_say_nothing() -> None:
    seen = [f"{verb} the number {n}" for n in range(40) for verb in ("sing", "count", "draw")]
    task = np.array([0, 1, 2] * 40, np.int64)
    head = train_task(prompts(seen), task, FEW)
    said = head(*prompts(["sing the table", "count a chair", "draw my house", ""]).tensors())
    assert said.argmax(1).tolist()[:3] == [0, 1, 2]
    assert said.shape == (4, TASKS)


def test_a_type_without_an_example_stays_improbable_whatever_the_words() -> None:
    head = train_task(prompts(["sing", "draw"] * 8), np.array([0, 1] * 8, np.int64), FEW)
    assert not head.words.weight[:, 2:].any()
    assert head.bias[2:].tolist() == [NEVER_SEEN] * (TASKS - 2)
    assert head.bias[:2].tolist() != [NEVER_SEEN] * 2
