from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hmas.contracts.request import TaskType
from hmas.perception.backends.encoder import PromptEncoder, padded
from hmas.perception.backends.grams import grams
from hmas.perception.backends.inputs import NUMBERS
from hmas.perception.backends.model import ARTEFACTS, TOKENIZER_FILE
from hmas_lab.perception.training.corpus import CorpusAnswer, Prompt

pytest.importorskip("torch", reason="needs the group `train`")

import torch
from transformers import BertConfig, BertModel

from hmas_lab.perception.training import held_out, loop
from hmas_lab.perception.training.examples import task_index
from hmas_lab.perception.training.held_out import choose, without
from hmas_lab.perception.training.loop import (
    Examples,
    TrainingRecipe,
    conformal_stretch,
    fit_experts,
    fit_length,
    fit_tools,
    scaling_of,
    states,
    straight_line,
    tune,
)
from hmas_lab.perception.training.network import HIDDEN, NEVER_SEEN, POOLED, TASKS, Tagger, TaskHead
from hmas_lab.perception.training.phrases import SOURCE

FEW = TrainingRecipe(match_epochs=1, shares=(1.0, 1.0, 1.0))
SHORT = TrainingRecipe(layers=2, steps=4, saved_every=2, batch=(0, 4, 4, 2))


def prompt(text: str, task: TaskType | None, **fields: object) -> Prompt:
    return Prompt(**{"group": text, "text": text, "tokens": 5, "task": task, "source": "s", "answers": (), **fields})  # type: ignore[arg-type]


def seen(prompts: list[Prompt]) -> Examples:
    """As the network sees them, the rules silent; word pieces are arbitrary but differ."""
    return Examples(
        prompts,
        [[101, 1000 + len(p.text), 2000 + ord(p.text[0]), 102] for p in prompts],
        np.zeros((len(prompts), NUMBERS), np.float32),
        padded([grams(p.text) for p in prompts]),
        task_index(prompts),
        np.array([-1 if p.calls_tool is None else int(p.calls_tool) for p in prompts], np.int64),
    )


def typed(texts: list[str], tasks: list[TaskType]) -> list[Prompt]:
    answers = (CorpusAnswer("gpt", 40),)
    rows = zip(texts, tasks, strict=True)
    return [prompt(text, task, answers=answers, calls_tool=len(text) % 2 == 0) for text, task in rows]


def verbs(count: int) -> Examples:
    kinds = {"sing": TaskType.QA, "count": TaskType.DIALOGUE, "draw": TaskType.TRANSLATION}
    texts = [f"{verb} the number {n}" for n in range(count) for verb in kinds]
    return seen(typed(texts, [kinds[text.split()[0]] for text in texts]))


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder of MiniLM's shape with random weights."""
    folder = tmp_path_factory.mktemp("backbone")
    torch.manual_seed(0)
    config = BertConfig(hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=12, intermediate_size=64)
    BertModel(config).save_pretrained(folder)
    return folder


def tagger(backbone: Path) -> Tagger:
    torch.manual_seed(0)
    return Tagger(backbone, SHORT.layers, 2, SHORT.shares)


def test_training_reaches_every_layer(backbone: Path) -> None:
    network = tagger(backbone)
    before = {name: weights.clone() for name, weights in network.named_parameters()}
    tune(network, verbs(8), ["", "gpt"], SHORT, None, lambda _: None)
    same = {name for name, weights in network.named_parameters() if torch.equal(weights, before[name])}
    assert same <= {name for name in before if name.startswith(("heads.task.matches", "heads.task.words"))}


def test_a_run_that_resumes_ends_as_an_uninterrupted_one(
    backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, checkpoint = tagger(backbone), tmp_path / "c"
    tune(whole, verbs(8), ["", "gpt"], SHORT, None, lambda _: None)
    with monkeypatch.context() as patched:
        true_loss, steps = loop._loss, iter(range(3))
        patched.setattr(loop, "_loss", lambda *args: (next(steps), true_loss(*args))[1])
        with pytest.raises(StopIteration):
            tune(tagger(backbone), verbs(8), ["", "gpt"], SHORT, checkpoint, lambda _: None)
    lines: list[str] = []
    resumed = tagger(backbone)
    tune(resumed, verbs(8), ["", "gpt"], SHORT, checkpoint, lines.append)
    assert lines[0] == "resumed at step 2"
    for (name, one), other in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
    with pytest.raises(ValueError, match="another recipe"):
        tune(tagger(backbone), verbs(8), ["", "gpt"], replace(SHORT, rate=1.0), checkpoint, lines.append)
    with pytest.raises(ValueError, match="other data"):
        tune(tagger(backbone), verbs(7), ["", "gpt"], SHORT, checkpoint, lines.append)


def test_the_length_head_is_trained_anew_and_the_encoder_left_alone(backbone: Path) -> None:
    network = tagger(backbone)
    before = network.encoder.state_dict()["layers.0.output.dense.weight"].clone()
    said = {"short": 20, "much longer": 600}
    rows = [prompt(text, TaskType.QA, answers=(CorpusAnswer("gpt", n),)) for text, n in said.items()] * 40
    data = seen(rows)
    fit_length(network, data, ["", "gpt"], SHORT)
    assert torch.equal(before, network.encoder.state_dict()["layers.0.output.dense.weight"])
    pooled, numbers = states(network, data)[:2], torch.from_numpy(data.numbers[:2])
    short, long = network.heads.length(pooled, numbers, torch.tensor([0, 0]))
    assert short[0] < long[0]
    assert all(median <= upper for median, upper in (short, long))


def test_calls_of_tools_are_learnt_although_they_are_few(backbone: Path) -> None:
    network = tagger(backbone)
    rows = [prompt(f"talk {n}", None, calls_tool=False) for n in range(10, 90)]
    rows += [prompt("book me the very first flight", None, calls_tool=True)] * 4
    data = seen(rows)
    fit_tools(network, data, replace(SHORT, tools_epochs=20))
    talk, book = network.heads.tools(states(network, data)[[0, -1]])
    assert talk < 0 < book


def test_words_decide_where_encoder_and_rules_say_nothing() -> None:
    head = TaskHead(FEW.shares).eval()
    torch.nn.init.zeros_(head.read[1].weight)
    fit_experts(head, verbs(40), FEW)
    held = seen([prompt(text, None) for text in ("sing the table", "count a chair", "draw my house")])
    said = head(torch.zeros(3, POOLED), torch.from_numpy(held.numbers), torch.from_numpy(held.grams))
    assert said.argmax(1).tolist() == [0, 1, 2]
    assert said.shape == (3, TASKS)


def test_a_type_without_an_example_stays_improbable_whatever_the_words() -> None:
    head = TaskHead(FEW.shares)
    fit_experts(head, seen(typed(["sing", "draw"] * 8, [TaskType.QA, TaskType.DIALOGUE] * 8)), FEW)
    assert not head.words.weight[:, 2:].any()
    assert head.bias[2:].tolist() == [NEVER_SEEN] * (TASKS - 2)
    assert head.bias[:2].tolist() != [NEVER_SEEN] * 2


def test_calibration_of_known_errors() -> None:
    true = np.expm1(np.linspace(1.0, 8.0, 100)).astype(np.float32)
    guess = np.expm1((np.log1p(true) - 1.0) / 0.5).astype(np.float32)
    assert straight_line(guess, true) == pytest.approx((1.0, 0.5), abs=1e-3)
    median, upper = np.full(1000, np.expm1(3.0)), np.full(1000, np.expm1(4.0))
    spread = np.expm1(3.0 + np.linspace(-2.0, 2.0, 1000)).astype(np.float32)
    assert conformal_stretch(median, upper, spread, 0.9) == pytest.approx(1.6, abs=0.02)
    sure = torch.tensor([[4.0, 0.0], [0.0, 4.0]]).repeat(50, 1)
    temperature, prior = scaling_of(sure, torch.tensor([0, 1] * 37 + [1, 0] * 13))
    assert temperature == pytest.approx(4 / np.log(37 / 13), rel=0.02)
    assert prior.tolist() == pytest.approx([0.0, 0.0], abs=0.02)
    _, prior = scaling_of(torch.zeros(100, 2), torch.tensor([0] * 80 + [1] * 20))
    assert prior[0] > 0.5 > -0.5 > prior[1]


def test_shares_are_chosen_on_the_inner_sources() -> None:
    right, wrong = torch.eye(TASKS)[[3, 5]], torch.eye(TASKS)[[1, 1]]
    for expert, shares in ((0, [1.0, 0.0, 0.0]), (1, [1.0, 1.5, 0.0]), (2, [1.0, 0.0, 0.75])):
        logits = torch.stack([wrong] * 3) * torch.tensor([1.0, 0.0, 0.0])[:, None, None]
        logits[expert] = right * (2.0 if expert else 1.0)
        chosen = choose({"inner": (logits, torch.tensor([3, 5]))}, torch.zeros(3, 2, TASKS), np.array([3, 5]))
        assert chosen["inner_accuracy"] == 1.0
        assert sum(share > 0 for share in chosen["shares"]) == sum(share > 0 for share in shares)
        assert chosen["shares"][expert] > 0


def test_each_source_is_left_out_once_and_a_finished_fold_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "The council met on Monday. It discussed the budget at length."
    rows = [
        prompt(f"{task} of {source}, number {n}", task, source=f"{task}-{source}", passages=(text,))
        for task in (TaskType.QA, TaskType.DIALOGUE, TaskType.SUMMARIZATION)
        for source in range(4)
        for n in range(30)
    ]
    trained: list[set[str]] = []

    def fit(data: Examples, *_: object) -> None:
        trained.append({p.source for p in data.prompts} | {s for p in data.prompts for s in p.made_of})

    def logits(_: object, data: Examples) -> torch.Tensor:
        return 5 * torch.nn.functional.one_hot(torch.from_numpy(data.task), TASKS).float().repeat(3, 1, 1)

    monkeypatch.setattr(held_out, "fit", fit)
    monkeypatch.setattr(held_out, "expert_logits", logits)
    monkeypatch.setattr(held_out, "prompt_encoder", lambda _: PromptEncoder(ARTEFACTS / TOKENIZER_FILE, 4, 2))
    recipe = replace(SHORT, synthetic_per_type=3)
    first = held_out.leave_sources_out(rows, [], recipe, tmp_path, lambda _: None)
    assert sorted(source for fold in first for source in fold["sources"]) == sorted({row.source for row in rows})
    for fold, seen_by_fold in zip(first, trained, strict=True):
        assert not set(fold["outer"]) & set(fold["inner"])
        assert not seen_by_fold & {*fold["outer"], *fold["inner"]}
        assert all(row["ours"] == row["network"] == 1.0 for row in fold["sources"].values())
    (tmp_path / "fold-3.json").unlink()
    assert held_out.leave_sources_out(rows, [], recipe, tmp_path, lambda _: None) == first
    assert len(trained) == len(first) + 1
    held_out.leave_sources_out(rows, [], replace(recipe, rate=1.0), tmp_path, lambda _: None)
    assert len(trained) == 2 * len(first) + 1


def test_no_fold_trains_on_what_it_leaves_out() -> None:
    rows = [
        prompt("a", TaskType.QA, source="out"),
        prompt("b", TaskType.QA, source="kept"),
        prompt("c", TaskType.QA, source="kept", group="beyond the cap"),
        prompt("d", TaskType.QA, source=SOURCE),
        prompt("e", TaskType.QA, source=SOURCE, made_of=frozenset({"out"})),
        prompt("f", TaskType.QA, source=SOURCE, made_of=frozenset({"kept"})),
    ]
    assert without(rows, frozenset({"out"}), {"a", "b"}).tolist() == [1, 3, 5]
    turn = prompt("t", None, source="sierra-research/tau-bench (gpt-4o, airline)")
    assert not len(without([turn], frozenset({"sierra-research/tau-bench (airline)"}), {"t"}))
