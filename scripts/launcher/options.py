"""The command line of scripts/serve, and how its options become parameters of the models."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .command import LOG_LEVELS, available_cores
from .ports import Ports
from .repository import models_in
from .server import ENGINE, ServerOptions

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_MODEL = "smollm2"
TOKENIZING = ("preprocessing", "postprocessing", "vllm_model", "llmapi", "ensemble_uint32")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the process with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/serve", description="Serve a language model with Triton Server, until Ctrl-C."
    )
    _add_model_options(parser)
    _add_network_options(parser)
    _add_engine_options(parser)
    return parser.parse_args(arguments)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", help=f"Hugging Face directory, .gguf file or a known name (default: {DEFAULT_MODEL})"
    )
    parser.add_argument(
        "--model-repository",
        type=Path,
        help="serve the models of this repository in place of the project's; without --model they get no parameters",
    )
    parser.add_argument(
        "--also-serve",
        type=Path,
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="serve the models of this repository beside them, as they are; may be repeated",
    )


def _add_network_options(parser: argparse.ArgumentParser) -> None:
    defaults = Ports()
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    for service, port in defaults._asdict().items():
        parser.add_argument(f"--{service}-port", type=int, default=port, help=f"{service} port, 0 = any (%(default)s)")
    parser.add_argument(
        "--model-control",
        action="store_true",
        help="let whoever reaches the server unload and load models through its API",
    )
    parser.add_argument(
        "--no-restart",
        dest="restart",
        action="store_false",
        help="end when the server or a model's process dies, in place of starting it again",
    )
    parser.add_argument(
        "--otlp-endpoint",
        default="",
        metavar="URL",
        help="tell the OTLP collector at http://host:port of requests, as spans of the server and of the engine",
    )
    parser.add_argument(
        "--trace-every", type=_positive, default=1, metavar="N", help="with it: trace one of N requests (%(default)s)"
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning", help="(%(default)s)")


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    def number(flag: str, default: int, meaning: str) -> None:
        parser.add_argument(flag, type=_count, default=default, metavar="N", help=f"{meaning} (%(default)s)")

    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(%(default)s)")
    parser.add_argument(
        "--weight-precision",
        choices=("auto", "float32", "int8"),
        default="auto",
        help="matrices on the CPU; auto is int8, a quarter of float32's memory traffic (%(default)s)",
    )
    parser.add_argument(
        "--batch-invariant",
        action="store_true",
        help="on the CPU, bit for bit the same answer whatever other requests share its steps; slower",
    )
    number("--max-batch-size", 32, "sequences that run at the same time")
    number("--max-num-tokens", 512, "tokens that one step may compute")
    number("--max-seq-len", 0, "prompt and output tokens of one request, 0 = what model and pool allow")
    number("--kv-cache-tokens", 0, "tokens that the KV pool holds, 0 = automatic")
    number("--max-queue-size", 0, "requests per level that may wait in the server's queue, 0 = as configured")
    number("--grace-seconds", 25, "time for open requests to finish after SIGTERM; Ctrl-C gives them 4")
    number("--threads", 0, "CPU threads of the engine, 0 = all cores")
    parser.add_argument(
        "--parameter",
        action="append",
        default=[],
        type=_assignment,
        metavar="KEY=VALUE",
        help="any further parameter of the engine; may be repeated",
    )


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def _positive(text: str) -> int:
    value = _count(text)
    if not value:
        raise argparse.ArgumentTypeError("0 is too little")
    return value


def _assignment(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def model_cache() -> Path:
    """Where fetched and converted models are kept; scripts/prepare_model.py reads the same variable."""
    return Path(os.environ.get("INFLIGHT_CACHE_DIR") or ROOT / ".cache" / "models")


def server_options(arguments: argparse.Namespace, model: Path | None) -> ServerOptions:
    """What to start; `model` is the checkpoint that the models get, None when they get none."""
    source = arguments.model_repository or ROOT / "model_repository"
    return ServerOptions(
        source=source,
        beside=tuple(place.absolute() for place in arguments.also_serve),
        parameters=_parameters(arguments, model, source) if model else {},
        max_queue_size=arguments.max_queue_size,
        host=arguments.host,
        ports=Ports(arguments.http_port, arguments.grpc_port, arguments.metrics_port),
        log_level=arguments.log_level,
        threads=arguments.threads,
        grace=arguments.grace_seconds,
        model_control=arguments.model_control,
        otlp_endpoint=arguments.otlp_endpoint,
        trace_every=arguments.trace_every,
    )


def _parameters(arguments: argparse.Namespace, model: Path, source: Path) -> dict[str, dict[str, str]]:
    wanted = {ENGINE: engine_parameters(arguments, model)}
    wanted |= {name: {"tokenizer_dir": str(model)} for name in TOKENIZING}
    present = models_in(source)
    return {name: values for name, values in wanted.items() if name in present}


def engine_parameters(arguments: argparse.Namespace, model: Path) -> dict[str, str]:
    """The engine's parameters, with TensorRT-LLM's names; an option left at 0 is left to the engine."""
    counts = {
        "max_batch_size": arguments.max_batch_size,
        "max_num_tokens": arguments.max_num_tokens,
        "max_seq_len": arguments.max_seq_len,
        "max_tokens_in_paged_kv_cache": arguments.kv_cache_tokens,
        "num_threads": arguments.threads or available_cores(),
    }
    return {
        "model_dir": str(model),
        "device": arguments.device,
        "weight_precision": arguments.weight_precision,
        **({"batch_invariant": "true"} if arguments.batch_invariant else {}),
        "log_level": arguments.log_level,
        **({"otlp_endpoint": arguments.otlp_endpoint} if arguments.otlp_endpoint else {}),
        **{name: str(value) for name, value in counts.items() if value},
        **dict(arguments.parameter),
    }
