"""The engine's command line: flags override the profile, and what does not fit is said before anything starts."""

from pathlib import Path

import pytest

from hmas.engine.__main__ import chosen_profile, main, parser


def test_flags_override_the_profile() -> None:
    args = parser().parse_args(
        ["--max-num-seqs", "8", "--num-gpu-blocks-override", "1100", "--scheduling-policy", "priority"]
    )
    profile = chosen_profile(args)
    assert profile.name == "tiny-emulated"
    assert (profile.limits.max_num_seqs, profile.limits.num_gpu_blocks) == (8, 1100)
    assert profile.limits.scheduling_policy == "priority"
    assert profile.limits.enable_prefix_caching is False
    on = parser().parse_args(["--enable-prefix-caching", "--dynamic-chunking", "--scheduling-policy", "urgency"])
    limits = chosen_profile(on).limits
    assert limits.enable_prefix_caching is True
    assert limits.dynamic_chunking is True
    assert limits.scheduling_policy == "urgency"


def test_a_calibrated_profile_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine: {cost: {c0_s: 0.01, c_p_s: 0, c_d_s: 0, c_k_s: 0}}")
    args = parser().parse_args(["--profile", "mine", "--profile-file", str(path)])
    assert chosen_profile(args).cost.c0_s == 0.01


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--profile", "nonesuch"], "no engine profile 'nonesuch'; choose one of:"),
        (["--max-num-seqs", "4096"], "max_num_batched_tokens must be at least max_num_seqs"),
        (["--profile-file", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_what_does_not_fit_is_said(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert message in capsys.readouterr().err
