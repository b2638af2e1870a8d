"""Generated requests through parsers and a real engine in this process: refused in one clear line, or carried out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import HealthCheck, Phase, given, settings
from tritonclient.grpc import model_config_pb2

from backend.engine import Engine
from backend.errors import InvalidRequest
from backend.request import Request
from backend.serving.entries.token_inputs import prompts_of
from backend.serving.entries.vllm_parameters import parameters_of
from backend.serving.inputs import Inputs
from backend.serving.request_parser import SHOWN_NAMES, RequestParser
from scripts.interface_table.configs import ENTRIES, REPOSITORY, Model
from tests.engine.engines import idle, small_engine
from tests.fuzz.cases import BATCH, MODELS, Case, cases, numbered
from tests.fuzz.judge import problems_of_error
from tests.fuzz.small_model import save_small
from tests.fuzz.values import VOCABULARY
from tests.fuzz.wire import WireTensor, fits, unpacked

EXAMPLES = 5000 if os.environ.get("TESTS_NIGHTLY") else 100
PARSER = RequestParser(
    vocab_size=VOCABULARY, eos_ids=frozenset({2}), priority_levels=3, default_level=2, echo_by_default=True
)
_ENGINE_NAMES = {shown: name for name, shown in SHOWN_NAMES.items()} | {"stream": "streaming"}


def test_the_same_seed_makes_the_same_cases_whatever_the_piece() -> None:
    whole = list(numbered(3, BATCH - 5, 10))
    assert [number for number, _ in whole] == list(range(BATCH - 5, BATCH + 5))
    assert list(numbered(3, BATCH, 5)) == whole[5:]
    assert whole[0][1] != whole[5][1]


def test_no_model_executes_the_requests_of_several_clients_together() -> None:
    """Where one of them is ill-formed, Triton Server answers all with its error."""
    for path in sorted(REPOSITORY.glob("*/config.pbtxt")):
        config = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
        assert not config.HasField("dynamic_batching") or config.max_batch_size == 1, path.parent.name


@pytest.mark.nightly
def test_every_input_of_every_entry_is_fuzzed() -> None:
    made = [case for _, case in numbered(1, 0, 20_000)]
    sent = {(case.model, tensor.name) for case in made for tensor in case.tensors}
    declared = {(name, each.name) for name in ENTRIES for each in MODELS[name].inputs}
    assert declared - sent == set()
    assert {case.door for case in made} == {"grpc", "generate", "generate_stream", "infer"}
    assert any(case.leaves_after is not None for case in made)


def reaches_the_model(model: Model, tensor: WireTensor) -> bool:
    """Whether Triton Server would hand the tensor on: of a declared name, type and shape, and whole."""
    for each in model.inputs:
        if each.name == tensor.name and each.datatype == tensor.datatype:
            dims = tensor.shape[1:] if model.batched else tensor.shape
            same = len(dims) == len(each.dims) and all(
                want in (-1, have) for want, have in zip(each.dims, dims, strict=True)
            )
            return same and all(0 <= dim < 10**6 for dim in tensor.shape) and fits(tensor)
    return False


def parse(case: Case) -> list[Any]:
    """What the case's parser makes of it, as the engine's requests. Raises InvalidRequest."""
    model = MODELS[case.model]
    given_tensors = {each.name: unpacked(each) for each in case.tensors if reaches_the_model(model, each)}
    custom = {name: value for name, value in case.parameters if json.dumps(value).isascii()}
    if case.model == "tensorrt_llm":
        rows = prompts_of(Inputs(given_tensors), custom)
        return [PARSER.parse(Inputs(row, SHOWN_NAMES), json.dumps(custom)) for row in rows]
    if case.model == "vllm_model":
        parameters_of(Inputs(given_tensors).string("sampling_parameters"), custom)
        return []
    tensors = {_ENGINE_NAMES.get(name, name): array for name, array in given_tensors.items()}
    if "text_input" in tensors:
        tensors["input_ids"] = np.array([[504, 3575, 282]], np.int32)
        del tensors["text_input"]
    return [PARSER.parse(Inputs(tensors, SHOWN_NAMES), json.dumps(custom))]


@pytest.fixture(scope="module")
def engine(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = small_engine(save_small(tmp_path_factory.mktemp("small"), smollm2_dir), max_seq_len=64, max_batch_size=4)
    yield made
    made.close()


def test_whatever_is_asked_is_refused_in_one_clear_line_or_carried_out(engine: Engine) -> None:
    counts = {"refused": 0, "carried out": 0}
    numbers = iter(range(1, 1 << 30))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        derandomize=not os.environ.get("TESTS_NIGHTLY"),
        database=None,
    )
    @given(cases().filter(lambda case: case.door == "grpc" and case.model in ENTRIES))
    def every(case: Case) -> None:
        try:
            for parsed in parse(case):
                run(engine, next(numbers), parsed)
            counts["carried out"] += 1
        except InvalidRequest as error:
            assert problems_of_error(str(error)) == []
            counts["refused"] += 1

    every()
    assert min(counts.values()) > EXAMPLES // 20, counts


def run(engine: Engine, number: int, parsed: Any) -> None:
    """Carry a request out, to its end; the pool is empty then."""
    asked = Request(
        request_id=number, prompt=parsed.prompt, sampling=parsed.sampling, level=parsed.level, arrival=number
    )
    engine.scheduler.check_fits(asked)
    sequence = engine.add(asked)
    while engine.has_work:
        engine.step()
    assert sequence.finish_reason is not None
    assert 1 <= sequence.num_output <= parsed.sampling.max_tokens
    engine.scheduler.check_integrity()
    assert idle(engine)
