"""Shell: `hmas engine`, or `python -m hmas.engine`, runs the emulated engine as a process. Its flags have the names of
vLLM's."""

import argparse
import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import get_args

import uvicorn

from hmas.engine.core.catalogued import profile_of
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import (
    EngineProfile,
    SchedulingPolicy,
    builtin_profile,
    builtin_profiles,
    parse_profiles,
)
from hmas.engine.hand_overs import KvTransferConfig
from hmas.engine.kv_events_config import KvPublisherConfig
from hmas.engine.named import named_profile
from hmas.engine.server import EngineServer
from hmas.runtime.catalogue_file import read_catalogue
from hmas.runtime.connections import ConnectionBounds, guarded
from hmas.runtime.extras import CannotStart
from hmas.runtime.open_files import raise_open_files

LIMIT_FLAGS = ("max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len", "max_num_queued_reqs")


def parser(program: str = "python -m hmas.engine") -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog=program, description="An emulated vLLM server.")
    p.add_argument(
        "--profile",
        default="tiny-emulated",
        help=f"engine profile: a file of `hmas calibrate`, or one of {', '.join(sorted(builtin_profiles()))}",
    )
    p.add_argument("--profile-file", type=Path, help="YAML file of further profiles, e.g. from `hmas calibrate`")
    p.add_argument("--catalogue", type=Path, help="YAML file of instance types, of which --profile then names one")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000, help="0: any free port, which is then printed")
    p.add_argument("--served-model-name", help="model name that clients use; default: the profile's name")
    for flag in LIMIT_FLAGS:
        p.add_argument(f"--{flag.replace('_', '-')}", type=int, help="overrides the profile's value")
    p.add_argument("--num-gpu-blocks-override", type=int, dest="num_gpu_blocks", help="size of the KV cache in blocks")
    p.add_argument("--watermark", type=float, help="share of KV blocks that admission leaves free, in [0, 1)")
    p.add_argument("--scheduling-policy", choices=get_args(SchedulingPolicy))
    p.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=None)
    p.add_argument(
        "--dynamic-chunking",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="limit prefill to the slack of decoding requests (vllm_xargs: hmas_tpot_ms, hmas_ttft_ms)",
    )
    p.add_argument(
        "--output-median",
        type=float,
        default=115.0,
        help="median length, in tokens, of answers whose length the client leaves open",
    )
    p.add_argument("--output-sigma", type=float, default=1.0, help="standard deviation of the log of those lengths")
    p.add_argument("--seed", type=int, default=0, help="seed of those lengths; each depends on prompt and seed alone")
    p.add_argument(
        "--kv-events-config",
        type=KvPublisherConfig.parse,
        help='publishes the events of the KV cache, such as {"endpoint": "tcp://*:5557", "replay_endpoint": '
        '"tcp://*:5558"}',
    )
    p.add_argument(
        "--kv-transfer-config",
        type=KvTransferConfig.parse,
        help='hands KV over to other emulated engines: {"kv_connector": "NixlConnector", "kv_role": "kv_both"}; '
        "they reach this one at VLLM_NIXL_SIDE_CHANNEL_HOST, or at --host",
    )
    p.add_argument("--start-delay-s", type=float, default=0.0, help="seconds until it listens, as a model is loaded")
    p.add_argument("--shutdown-grace-s", type=int, default=5, help="seconds for which streams go on after SIGTERM")
    return p


def chosen_profile(args: argparse.Namespace) -> EngineProfile:
    """Returns the profile that `args` name, with its limits overridden by the flags given.

    Raises ValueError for an unknown profile or limits that contradict one another, OSError for an unreadable file.
    """
    if args.catalogue is not None:
        profile = profile_of(read_catalogue(args.catalogue).named(args.profile))
    elif args.profile_file is not None:
        profiles = parse_profiles(args.profile_file.read_text(encoding="utf-8"))
        profile = profiles[args.profile] if args.profile in profiles else builtin_profile(args.profile)
    else:
        profile = named_profile(args.profile)
    names = (
        *LIMIT_FLAGS,
        "num_gpu_blocks",
        "watermark",
        "scheduling_policy",
        "enable_prefix_caching",
        "dynamic_chunking",
    )
    return profile.with_limits(**{name: value for name in names if (value := getattr(args, name)) is not None})


def _age_s() -> float:
    """Returns how long ago this process was started, of which imports are most; 0 where the kernel does not tell."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def main(argv: list[str] | None = None, program: str = "python -m hmas.engine") -> int:
    args = parser(program).parse_args(argv)
    try:
        profile = chosen_profile(args)
        length = OutputLength(args.output_median, args.output_sigma, args.seed)
        if args.kv_transfer_config is not None and not args.port:
            raise ValueError("--kv-transfer-config needs a --port, which other engines are told")
        name = args.served_model_name or profile.name
        address = os.environ.get("VLLM_NIXL_SIDE_CHANNEL_HOST", args.host), args.port
        dev_mode = os.environ.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0")
        transfer = args.kv_transfer_config
        app = EngineServer(profile, name, length, args.kv_events_config, transfer, address, dev_mode=dev_mode)
    except (ValueError, OSError, CannotStart) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    time.sleep(max(0.0, args.start_delay_s - _age_s()))
    raise_open_files()
    config = uvicorn.Config(
        app,
        host=args.host,
        port=args.port,
        loop="auto",
        http=guarded(ConnectionBounds()),
        ws="none",
        lifespan="on",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=args.shutdown_grace_s,
    )
    # uvicorn hands a caught signal on when it has shut down; a stop that was asked for is not a failure.
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, lambda *_: None)
    # Objects loaded so far live until exit: exempt them from garbage collection and make collections rare, because a
    # collection's pause would delay an engine step.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 1_000)
    uvicorn.Server(config).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
