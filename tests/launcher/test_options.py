from __future__ import annotations

from pathlib import Path

import pytest

from scripts.launcher import command, options
from scripts.launcher.errors import LaunchError
from scripts.launcher.ports import Ports
from scripts.launcher.server_binary import ServerBinary

from .tiny_models import add_model


def _repository(tmp_path):
    for name in ("preprocessing", "inflight_batcher", "postprocessing", "other"):
        add_model(tmp_path, name)
    return tmp_path


def _server_options(tmp_path, *flags):
    arguments = options.parse(["--model-repository", str(_repository(tmp_path)), *flags])
    return options.server_options(arguments, Path("checkpoint"))


def test_options_become_parameters_of_the_models_that_want_them(tmp_path):
    chosen = _server_options(tmp_path, "--kv-cache-tokens", "4096", "--threads", "3", "--parameter", "a=b=c")
    assert chosen.parameters == {
        "preprocessing": {"tokenizer_dir": "checkpoint"},
        "postprocessing": {"tokenizer_dir": "checkpoint"},
        "inflight_batcher": {
            "model_dir": "checkpoint",
            "device": "auto",
            "weight_precision": "auto",
            "log_level": "warning",
            "max_batch_size": "32",
            "max_num_tokens": "512",
            "max_tokens_in_paged_kv_cache": "4096",
            "num_threads": "3",
            "a": "b=c",
        },
    }


def test_with_a_collector_the_engine_and_the_server_are_told_of_it(tmp_path):
    chosen = _server_options(tmp_path, "--otlp-endpoint", "http://host:4318", "--trace-every", "7")
    assert chosen.parameters["inflight_batcher"]["otlp_endpoint"] == "http://host:4318"
    assert command.tracing(chosen.otlp_endpoint, chosen.trace_every) == [
        *("--trace-config", "mode=opentelemetry"),
        *("--trace-config", "level=TIMESTAMPS"),
        *("--trace-config", "rate=7"),
        *("--trace-config", "opentelemetry,url=http://host:4318/v1/traces"),
    ]
    with pytest.raises(LaunchError, match="otlp_endpoint: 'host:4318' is no"):
        command.tracing("host:4318", 1)


def test_the_server_has_few_heaps_unless_the_environment_says_how_many(monkeypatch):
    binary = ServerBinary(executable=Path("server"), backends=Path("backends"))
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert command.environment(binary, 2, "mark")["MALLOC_ARENA_MAX"] == "2"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert command.environment(binary, 2, "mark")["MALLOC_ARENA_MAX"] == "8"


def test_ports_and_host_are_the_documented_defaults(tmp_path):
    chosen = _server_options(tmp_path)
    assert (chosen.host, chosen.ports) == ("127.0.0.1", Ports(8000, 8001, 8002))


@pytest.mark.parametrize(
    "flags", [["--threads", "-1"], ["--parameter", "novalue"], ["--device", "tpu"], ["--trace-every", "0"]]
)
def test_wrong_options_end_with_a_usage_message(flags, capsys):
    with pytest.raises(SystemExit):
        options.parse(flags)
    assert flags[0] in capsys.readouterr().err
