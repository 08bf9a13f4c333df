"""What becomes of measurements: which are used, which types are made of them, and what is refused."""

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmas.contracts.pool_plan import CostOrigin
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineLimits, EngineProfile, FitError
from hmas.mesh.profiling.calibrated_types import by_cell, fit_calibrations
from hmas.mesh.profiling.card_scaling import CardScaling, predicted_s
from hmas.mesh.profiling.cli import app
from hmas.mesh.profiling.fitted_types import fit_cell
from hmas.mesh.profiling.known_cells import CELLS, H100, ModelShape
from hmas.mesh.profiling.silicon import FILE, MAX_TTFT_S, MeasuredLoop, observations_by_gpus, sift
from hmas.runtime.catalogue_file import read_catalogue

LAW = CardScaling((2e-3, 1e-5, 3e-5, 1e-9, 0.0), (20e-3, 8e-5, 5e-5, 4e-8, 0.0))
CELL = CELLS["qwen3-32b-fp8-trtllm-h100"]


def loop(gpus: int, users: float = 8, prompt: int = 1024, output: int = 512, **changed: object) -> MeasuredLoop:
    made = MeasuredLoop(gpus=gpus, prompt=prompt, output=output, users=users, tpot_s=1.0, ttft_s=0.5)
    work = made.observation(quadratic=False)
    seconds = float(predicted_s(LAW.at(gpus), [work])[0])
    return replace(made, **({"tpot_s": seconds} | changed))  # type: ignore[arg-type]


def loops(*sizes: int) -> list[MeasuredLoop]:
    lengths = ((1024, 128), (1024, 512), (4096, 512))
    return [loop(gpus, users, *each) for gpus in sizes for users in (1, 4, 16, 32) for each in lengths]


def test_the_prefill_of_all_others_falls_between_the_tokens_of_a_request() -> None:
    seen = MeasuredLoop(gpus=1, prompt=100, output=50, users=11, tpot_s=0.02, ttft_s=0).observation(quadratic=True)
    assert seen.features() == (1.0, 20.0, 11.0, 11 * 125.0, 0.2 * 5000)
    plain = MeasuredLoop(gpus=1, prompt=100, output=50, users=11, tpot_s=0.02, ttft_s=0).observation(quadratic=False)
    assert plain.features()[-1] == 0.0


def test_loops_that_queued_or_outgrew_the_memory_or_were_repeated_are_counted_and_not_used() -> None:
    kept = loop(1, 8, day="2026-02-01")
    sifted = sift(
        [
            loop(1, 8, tpot_s=9.0, day="2026-01-01"),
            kept,
            loop(1, 8, tpot_s=9.0, day="2026-02-01"),
            loop(1, 16, ttft_s=MAX_TTFT_S + 0.01),
            (longest := loop(1, 32, ttft_s=MAX_TTFT_S)),
            loop(1, 33),
            loop(2, 8),
        ],
        {1: 32 * 1536},
    )
    assert sifted.loops == (kept, longest)
    assert (sifted.queued, sifted.outgrown, sifted.repeated) == (1, 2, 2)


@pytest.mark.parametrize(("prompts", "told"), [((1024, 8192), False), ((1024, 2048, 8192), True)])
def test_attention_of_prefill_is_fitted_where_three_prompt_lengths_tell_it(
    prompts: tuple[int, ...], told: bool
) -> None:
    observed = observations_by_gpus([loop(1, prompt=prompt) for prompt in prompts])
    assert all((o.prefill_pairs > 0) == told for o in observed[1])


def test_types_are_measured_interpolated_and_beyond_that_assumed() -> None:
    fitted = fit_cell(CELL, loops(2, 4, 8))
    assert [(each.kind.gpus, each.kind.origin) for each in fitted.types] == [
        (1, CostOrigin.ASSUMED), (2, CostOrigin.MEASURED), (4, CostOrigin.MEASURED), (8, CostOrigin.MEASURED),
    ]  # fmt: skip
    assert fit_cell(CELL, loops(1, 2, 4)).types[-1].kind.origin is CostOrigin.ASSUMED
    fitted = fit_cell(CELL, loops(1, 2, 8))
    between = fitted.types[2]
    assert (between.kind.gpus, between.kind.origin, between.points) == (4, CostOrigin.INTERPOLATED, 0)
    assert between.kind.step.step_s(0, 16, 20_000, 0) == pytest.approx(LAW.at(4).step_s(0, 16, 20_000, 0), rel=0.01)
    assert fitted.scaling is not None
    assert between.kind.error == pytest.approx(fitted.scaling.mean, abs=1e-4)
    assert between.kind.name == "qwen3-32b-fp8-trtllm-h100-tp4"


def test_a_type_that_was_not_measured_has_the_error_of_the_nearest_end_that_was_left_out() -> None:
    off = [
        replace(each, tpot_s=1.3 * each.tpot_s) if each.gpus == 8 and each.users > 8 else each
        for each in loops(2, 4, 8)
    ]
    fitted = fit_cell(CELL, off)
    assert fitted.scaling is not None
    assert fitted.types[0].kind.error == pytest.approx(fitted.scaling.left_out[2], abs=1e-4)
    assert fitted.scaling.left_out[2] != pytest.approx(fitted.scaling.left_out[8], abs=1e-3)


def test_two_numbers_of_cards_are_types_and_nothing_is_told_of_others() -> None:
    fitted = fit_cell(CELL, loops(1, 2))
    assert [each.kind.gpus for each in fitted.types] == [1, 2]
    assert fitted.scaling is None


def test_memory_is_what_weights_and_overhead_leave() -> None:
    assert CELL.kv_tokens(2) == int((2 * (0.9 * 80 - 2) - 33) * 1e9 / 131072)
    large = replace(CELL, shape=ModelShape(69.0, 1.0, 131072))  # leaves 1 GB: less than the longest request needs
    assert 0 < large.kv_tokens(1) < 32768
    assert [each.kind.gpus for each in fit_cell(large, loops(1, 2, 4)).types] == [2, 4, 8]


def test_a_step_shorter_than_reading_the_weights_is_refused() -> None:
    short = [replace(each, tpot_s=0.1 * each.tpot_s) for each in loops(1, 2, 4)]
    with pytest.raises(ValueError, match=r"on h100 x 1 a step .* reading the weights takes 9.9 ms"):
        fit_cell(CELL, short)
    assert CELL.weights_s(2) == pytest.approx(33 / H100.tb_s / 2000)


# --- calibrations ---


def calibration(gpus: int, model: str = "org/Some-7B", hardware: str = "H100") -> EngineProfile:
    limits = EngineLimits(max_num_seqs=64, num_gpu_blocks=4096 * gpus, max_model_len=4096)
    fit = FitError(40, 0.02, 0.03, 0.01 * gpus, 0.05)
    return EngineProfile(f"c{gpus}", LAW.at(gpus), limits, "", fit, model=model, hardware=f"{hardware}x{gpus}")


def test_calibrations_become_types_and_what_lies_between_them() -> None:
    found, refused = by_cell([calibration(gpus) for gpus in (1, 2, 8)])
    (((model, card), calibrated),) = found.items()
    assert (model, card, refused) == ("org/Some-7B", "h100", [])
    types = [each.kind for each in fit_calibrations(model, card, calibrated).types]
    assert [(each.name, each.origin.value, each.kv_tokens) for each in types] == [
        ("some-7b-h100-tp1", "calibrated", 65536), ("some-7b-h100-tp2", "calibrated", 2 * 65536),
        ("some-7b-h100-tp4", "interpolated", 4 * 65536), ("some-7b-h100-tp8", "calibrated", 8 * 65536),
    ]  # fmt: skip
    assert types[1].error == 0.02
    beyond = fit_calibrations(model, card, {gpus: calibration(gpus) for gpus in (2, 3, 4)})
    assert [each.kind.gpus for each in beyond.types] == [2, 3, 4]
    assert types[2].step.step_s(100, 16, 9000, 0) == pytest.approx(LAW.at(4).step_s(100, 16, 9000, 0), rel=0.01)


@pytest.mark.parametrize(("model", "hardware"), [("", "H100x2"), ("m", ""), ("m", "H100"), ("m", "H100x0")])
def test_a_calibration_that_does_not_tell_its_cards_is_refused_by_name(model: str, hardware: str) -> None:
    found, (line,) = by_cell([replace(calibration(2), model=model, hardware=hardware)])
    assert found == {}
    assert line.startswith("c2: it does not tell its model and its cards")


# --- the command ---

COLUMNS = {"mode": "agg", "attention_dp_size": "", "moe_ep_size": "1.0", "pp_size": "1.0", "measured": "2026-01-01"}


def table(folder: Path, rows: list[MeasuredLoop], **changed: str) -> Path:
    key = CELL.key
    names = {"model_path": key.model, "system": key.system, "backend": key.backend, "precision": key.precision}
    lines = [
        names | COLUMNS | {
            "tp_size": f"{each.gpus}.0", "isl": str(each.prompt), "osl": str(each.output),
            "silicon_concurrency": str(each.users), "silicon_tpot_ms": str(1000 * each.tpot_s),
            "silicon_ttft_ms": str(1000 * each.ttft_s),
        } | changed
        for each in rows
    ]  # fmt: skip
    with gzip.open(folder / FILE, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return folder


def run(*words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["fit", *words])
    return ran.exit_code, ran.output


def test_a_cell_without_measurements_is_refused_and_the_others_are_fitted(tmp_path: Path) -> None:
    out = tmp_path / "new" / "catalogue.yaml"
    code, text = run("--data", str(table(tmp_path, [*loops(1, 2, 4), loop(1, ttft_s=6.0)])), "--out", str(out))
    assert code == 0
    assert "left out: gpt-oss-120b-fp4-vllm-h200: the table has no measurements of it" in text
    assert "1 with a TTFT above 5 s" in text
    assert [each.gpus for each in read_catalogue(out).types] == [1, 2, 4, 8]
    assert {each.model for each in read_catalogue(out).types} == {"Qwen/Qwen3-32B-fp8"}


@pytest.mark.parametrize("spread", [{"attention_dp_size": "2.0"}, {"moe_ep_size": "2.0"}, {"mode": "disagg"}])
def test_engines_that_spread_anything_but_layers_over_cards_are_not_read(
    tmp_path: Path, spread: dict[str, str]
) -> None:
    code, text = run("--data", str(table(tmp_path, loops(1, 2, 4), **spread)), "--out", str(tmp_path / "c.yaml"))
    assert (code, (tmp_path / "c.yaml").exists()) == (1, False)
    assert "no cell could be fitted" in text


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    assert "nothing to fit: give --data FOLDER" in run()[1]
    assert "no cell some-model: there are qwen3-32b-fp8" in run("--data", str(tmp_path), "--cell", "some-model")[1]
    table(tmp_path, loops(1), isl="long")
    assert "line 2: invalid literal" in run("--data", str(tmp_path))[1].replace("\n", "")


def test_a_file_of_calibrations_becomes_a_catalogue(tmp_path: Path) -> None:
    file, out = tmp_path / "mine.yaml", tmp_path / "c.yaml"
    cost = "{c0_s: 0.01, c_p_s: 1.0e-5, c_d_s: 1.0e-5, c_k_s: 0}"
    file.write_text(f"two: {{model: m, hardware: H100x2, cost: {cost}}}\nlost: {{cost: {cost}}}\n")
    code, text = run("--from", str(file), "--out", str(out))
    assert code == 0
    assert "left out: lost: it does not tell" in text
    (kind,) = read_catalogue(out).types
    assert (kind.name, kind.gpus, kind.origin, kind.error) == ("m-h100-tp2", 2, CostOrigin.CALIBRATED, None)
    assert kind.step == StepCostModel(0.01, 1e-5, 1e-5, 0)
