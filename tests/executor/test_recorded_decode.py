"""A recorded decode step gives what the decoder gives without a recording, bit for bit, step after step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from backend.executor.recorded_decode import MOST_ROWS, RecordedDecode
from backend.model.batch import StepInputs
from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import load_weights
from kernels.operations import Operations
from kernels.table import cpu_operations
from tests.model.paged_run import PagedRun
from tests.model.tiny_models import TINY, save_tiny

PROMPTS = [[3 + (7 * i + 5 * s) % 97 for i in range(length)] for s, length in enumerate((40, 25, 33))]
STEPS = [
    [(0, 20), (1, 1), (2, 7)],  # a chunk: not recorded
    *[[(0, 1), (1, 1), (2, 1)]] * 10,
    *[[(2, 1)]] * 3,
    [(1, 1), (2, 1)],
    *[[(1, 1), (2, 1), (0, 1)]] * 9,  # another order of the same number of rows, and longer tables
]


class CountingRecorder:
    """Passes on to the operations' recorder, and counts."""

    def __init__(self, operations: Operations) -> None:
        assert operations.recorder is not None
        self.inner, self.recorded, self.replayed = operations.recorder, 0, 0

    def recording(self) -> object:
        self.recorded += 1
        return self.inner.recording()

    def replay(self, recording: object) -> None:
        self.replayed += 1
        self.inner.replay(recording)


class Recorded:
    """A decoder whose steps go through a RecordedDecode."""

    def __init__(self, decoder: Decoder, recorder: CountingRecorder, max_blocks: int) -> None:
        self.decoder, self.config, self._recorder, self._max_blocks = decoder, decoder.config, recorder, max_blocks
        self._decode: RecordedDecode | None = None

    def forward(self, inputs: StepInputs, pool: Tensor) -> Tensor:
        self._decode = self._decode or RecordedDecode(self.decoder, pool, self._recorder, self._max_blocks)
        return self._decode.forward(inputs)


@pytest.fixture(scope="module", params=["float32", "int8", "int8 by int8"])
def operations(request: pytest.FixtureRequest) -> Operations:
    weights, _, activations = request.param.partition(" by ")
    return cpu_operations(2, weights, activation_precision=activations or "int16", pool=torch.int16)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory, operations: Operations) -> Callable[[str], Decoder]:
    def get(name: str) -> Decoder:
        path = tmp_path_factory.mktemp(name)
        save_tiny(name, path)
        config = ModelConfig.from_directory(path)
        weights = load_weights(path, config, progress=False, pack=operations.pack_linear)
        return Decoder(config, weights, operations)

    return get


@pytest.mark.parametrize("name", TINY)
def test_every_family_gives_the_same_bits(name: str, load: Callable[[str], Decoder], operations: Operations) -> None:
    decoder, recorder = load(name), CountingRecorder(operations)
    expected = PagedRun(decoder, PROMPTS).run(STEPS)
    found = PagedRun(Recorded(decoder, recorder, max_blocks=12), PROMPTS).run(STEPS)
    assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))
    assert (recorder.recorded, recorder.replayed) == (3, len(STEPS) - 1 - 3)


def test_over_a_pool_of_int16_they_are_the_same(load: Callable[[str], Decoder], operations: Operations) -> None:
    decoder, recorder = load("qwen3-heads-of-64"), CountingRecorder(operations)
    pool: dict[str, Any] = {"block_size": 16, "dtype": torch.int16}
    expected = PagedRun(decoder, PROMPTS, **pool).run(STEPS)
    found = PagedRun(Recorded(decoder, recorder, max_blocks=12), PROMPTS, **pool).run(STEPS)
    assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))
    assert recorder.replayed > 0


def test_what_does_not_fit_a_recording_is_computed_without(
    load: Callable[[str], Decoder], operations: Operations
) -> None:
    decoder, recorder = load("llama-tied"), CountingRecorder(operations)
    expected = PagedRun(decoder, PROMPTS).run(STEPS)
    found = PagedRun(Recorded(decoder, recorder, max_blocks=3), PROMPTS).run(STEPS)
    assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))
    many = [[5, 6]] * (MOST_ROWS + 1)
    PagedRun(Recorded(decoder, recorder, max_blocks=12), many).run([[(s, 1) for s in range(len(many))]])
    assert (recorder.recorded, recorder.replayed) == (0, 0)


def test_only_the_rows_asked_for_come_back(load: Callable[[str], Decoder], operations: Operations) -> None:
    decoder, recorder = load("qwen3"), CountingRecorder(operations)
    for logit_rows in ([0, 1, 2], [2]):
        run = PagedRun(decoder, PROMPTS)
        run.run([[(0, 1), (1, 1), (2, 1)]])
        inputs = run.inputs([(0, 1), (1, 1), (2, 1)])
        asked = dataclasses.replace(inputs, logit_rows=torch.tensor(logit_rows))
        decode = RecordedDecode(decoder, run.pool, recorder, 12)
        for _ in range(2):
            assert torch.equal(decode.forward(asked), decoder.forward(asked, run.pool))
