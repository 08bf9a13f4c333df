"""The catalogue of instance types as a file: what is read is what was written, and faults are named."""

from dataclasses import replace
from pathlib import Path

import pytest

from hmas.contracts.pool_plan import Catalogue, CostOrigin, InstanceType
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.catalogued import profile_of
from hmas.runtime.catalogue_file import (
    MAX_BYTES,
    MAX_FAULTS,
    parse_catalogue,
    read_catalogue,
    render_catalogue,
    shipped_catalogue,
)

KIND = InstanceType(
    name="m-h100-tp2", model="m", hardware="h100", gpus=2, step=StepCostModel(0.01, 1e-5, 2e-5, 3e-8, 4e-10),
    kv_tokens=1000, max_num_seqs=8, max_num_batched_tokens=64, start_s=90.0, usd_h=7.5,
    origin=CostOrigin.CALIBRATED, error=0.02,
)  # fmt: skip
LEAST = "types: {a: {model: m, hardware: h, gpus: 1, step: {c0_s: 1, c_p_s: 0, c_d_s: 0, c_k_s: 0}, kv_tokens: 9}}"


def test_what_is_written_is_read_again() -> None:
    catalogue = Catalogue((KIND, replace(KIND, name="m-h100-tp4", gpus=4, error=None)), "a source")
    text = render_catalogue(catalogue, "a comment\nof two lines")
    assert text.startswith("# a comment\n# of two lines\nsource: a source\n")
    assert parse_catalogue(text) == catalogue


def test_what_is_left_out_has_the_defaults_of_an_instance_type() -> None:
    (kind,) = parse_catalogue(LEAST).types
    assert kind == InstanceType(name="a", model="m", hardware="h", gpus=1, step=StepCostModel(1, 0, 0, 0), kv_tokens=9)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("gpus: 1", "gpus: many", "types.a.gpus: "),
        ("gpus: 1", "gpus: 0", "types.a.gpus: "),
        ("gpus: 1", "gpus: 1, gpu: 2", "types.a.gpu: "),
        ("kv_tokens: 9", "kv_tokens: 0", "types.a.kv_tokens: "),
        ("kv_tokens: 9", "usd_h: 1", "types.a.kv_tokens: Field required"),
        ("kv_tokens: 9", "kv_tokens: 9, start_s: .nan", "types.a.start_s: "),
        ("kv_tokens: 9", "kv_tokens: 9, error: -0.1", "types.a.error: "),
        ("kv_tokens: 9", "kv_tokens: 9, origin: guessed", "types.a.origin: "),
        ("kv_tokens: 9", "kv_tokens: 9, max_num_batched_tokens: 255", "types.a: max_num_batched_tokens must be"),
        ("c0_s: 1", "c0_s: 0", "types.a.step.c0_s: "),
        ("c0_s: 1", "c0_s: .inf", "types.a.step.c0_s: "),
        ("c_k_s: 0", "c_k_s: -1", "types.a.step.c_k_s: "),
        ("{a:", "{A_b:", "types.A_b"),
        ("types: {a", "kinds: {a", "types: Field required"),
        (LEAST, "types: {}", "types: "),
        (LEAST, "- 1", "a mapping with `types`"),
        (LEAST, "a: [", "not YAML"),
        (LEAST, "[" * 5000, "not YAML"),
    ],
)
def test_a_fault_is_told_by_type_and_field(before: str, after: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(LEAST.replace(before, after))
    with pytest.raises(ValueError, match=r"mine\.yaml is not valid") as raised:
        read_catalogue(path)
    assert told in str(raised.value)


def test_of_many_faults_some_are_told_and_the_others_counted() -> None:
    with pytest.raises(ValueError, match="and 4 more"):
        parse_catalogue("types: {" + ", ".join(f"a{i}: 1" for i in range(MAX_FAULTS + 4)) + "}")


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(LEAST + " " * (MAX_BYTES - len(LEAST)))
    assert read_catalogue(path).types
    path.write_text(LEAST + " " * (MAX_BYTES - len(LEAST) + 1))
    with pytest.raises(ValueError, match="more than"):
        read_catalogue(path)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"types: \xff")
    with pytest.raises(ValueError, match=r"mine\.yaml is not valid"):
        read_catalogue(tmp_path / "mine.yaml")


def test_the_shipped_catalogue_can_be_emulated_and_more_cards_are_faster() -> None:
    catalogue = shipped_catalogue()
    by_model: dict[tuple[str, str], list[InstanceType]] = {}
    for kind in catalogue.types:
        assert profile_of(kind).cost == kind.step
        by_model.setdefault((kind.model, kind.hardware), []).append(kind)
    assert len(by_model) == 5
    for kinds in by_model.values():
        alone_s = [kind.step.step_s(0, 1, 1000, 0) for kind in kinds]
        assert [kind.gpus for kind in kinds] == sorted(kind.gpus for kind in kinds)
        assert alone_s == sorted(alone_s, reverse=True)
