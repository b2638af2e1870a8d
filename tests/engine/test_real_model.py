"""SmolLM2 in float32, preempted where it hurts: its text is that of an undisturbed run, and transformers' own.

One slot, so that each urgent request takes it from whoever has it; no prefix cache, so that what was lost is really
copied or computed again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.config import EngineConfig
from backend.endings import FinishReason
from backend.engine import Engine
from backend.engine_builder import build_engine
from backend.request import Sequence, State
from tests.engine.engines import idle, request
from tests.reference import Reference

pytestmark = pytest.mark.all_cores
BLOCK, CHUNK, OUTPUT = 16, 48, 24
TEXT = "The lighthouse keeper counted the ships that passed in the night, and wrote their names in a book:"
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 7}
SAMPLING = pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "seeded"])


@pytest.fixture(scope="module", params=["swap", "recompute"])
def engine(request: pytest.FixtureRequest, smollm2_dir: Path) -> Iterator[Engine]:
    config = EngineConfig(
        model_dir=str(smollm2_dir),
        max_batch_size=1,
        max_num_tokens=CHUNK,
        max_tokens_in_paged_kv_cache=2048,
        tokens_per_block=BLOCK,
        max_step_ms=0.0,
        weight_precision="float32",
        enable_kv_cache_reuse=False,
        preemption_mode=request.param,
        kv_cache_host_memory_bytes=1 << 28 if request.param == "swap" else 0,
        num_threads=2,
    )
    engine = build_engine(config, progress=False).engine
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference(smollm2_dir: Path) -> Reference:
    return Reference(smollm2_dir)


class Undisturbed:
    """What an engine says when nobody disturbs it; asked once per prompt and sampling."""

    def __init__(self, engine: Engine, reference: Reference) -> None:
        self._engine, self._reference = engine, reference
        self._known: dict[tuple[tuple[int, ...], bool], list[int]] = {}

    def output(self, prompt: tuple[int, ...], sampling: dict) -> list[int]:
        key = prompt, bool(sampling)
        if key not in self._known:
            sequence = self._engine.add(request(prompt, OUTPUT, level=3, **sampling))
            self._known[key] = finish(self._engine, sequence)
            assert sequence.num_preemptions == 0
            if not sampling:
                assert self._reference.tied_ids(prompt, self._known[key])
        return self._known[key]


@pytest.fixture(scope="module")
def undisturbed(engine: Engine, reference: Reference) -> Undisturbed:
    return Undisturbed(engine, reference)


def prompt_of(reference: Reference, length: int) -> tuple[int, ...]:
    ids = reference.prompt_ids(TEXT)
    return tuple((ids * (length // len(ids) + 1))[:length])


def finish(engine: Engine, low: Sequence) -> list[int]:
    while engine.has_work:
        engine.step()
    engine.scheduler.check_integrity()
    assert idle(engine)
    assert low.finish_reason is FinishReason.LENGTH
    return list(low.output)


def take_its_slot(engine: Engine) -> None:
    engine.add(request((504, 3575, 282), 2, level=1))


def check(
    engine: Engine,
    undisturbed: Undisturbed,
    prompt: tuple[int, ...],
    sampling: dict,
    disturb: Callable[[Sequence], int],
) -> None:
    """An undisturbed run and a disturbed one say the same; disturb returns how often it has preempted."""
    expected = undisturbed.output(prompt, sampling)
    copied = engine.scheduler.residency.swapped_blocks
    low = engine.add(request(prompt, OUTPUT, level=3, **sampling))
    times = disturb(low)
    assert finish(engine, low) == expected
    assert low.num_preemptions == times
    assert (engine.scheduler.residency.swapped_blocks > copied) == (engine.scheduler.residency.host.num_free > 0)


@SAMPLING
@pytest.mark.parametrize(
    "at", [0, BLOCK, *(pytest.param(at, marks=pytest.mark.nightly) for at in (1, BLOCK - 1, BLOCK + 1))]
)
def test_preempted_at_an_output_token(
    engine: Engine, undisturbed: Undisturbed, reference: Reference, at: int, sampling: dict
) -> None:
    def disturb(low: Sequence) -> int:
        engine.step()
        while low.num_output < at:
            engine.step()
        assert low.num_output == at
        take_its_slot(engine)
        return 1

    check(engine, undisturbed, prompt_of(reference, 2 * BLOCK), sampling, disturb)


@SAMPLING
def test_preempted_inside_a_chunked_prompt(
    engine: Engine, undisturbed: Undisturbed, reference: Reference, sampling: dict
) -> None:
    def disturb(low: Sequence) -> int:
        engine.step()
        engine.step()
        assert (low.num_computed, low.num_output) == (2 * CHUNK, 0)
        take_its_slot(engine)
        return 1

    check(engine, undisturbed, prompt_of(reference, 3 * CHUNK + 5), sampling, disturb)


@SAMPLING
def test_preempted_twice_running(
    engine: Engine, undisturbed: Undisturbed, reference: Reference, sampling: dict
) -> None:
    def disturb(low: Sequence) -> int:
        while low.num_output < BLOCK + 3:
            engine.step()
        for _ in range(2):
            take_its_slot(engine)
            while low.state is State.RUNNING:
                engine.step()
            while low.state is State.WAITING:
                engine.step()
        return 2

    check(engine, undisturbed, prompt_of(reference, 2 * BLOCK + 3), sampling, disturb)


@pytest.fixture(scope="module")
def wide_engine(smollm2_dir: Path) -> Iterator[Engine]:
    config = EngineConfig(
        model_dir=str(smollm2_dir),
        max_batch_size=32,
        max_num_tokens=64,
        max_tokens_in_paged_kv_cache=8192,
        weight_precision="float32",
    )
    engine = build_engine(config, progress=False).engine
    yield engine
    engine.close()


def test_the_text_does_not_depend_on_neighbours_nor_on_the_prefix_cache(
    wide_engine: Engine, reference: Reference
) -> None:
    """Alone, again with its prefix cached, then beside 1, 7 and 31 others: one text, and transformers' own."""
    prompt, texts = prompt_of(reference, 70), []
    for neighbours in (0, 0, 1, 7, 31):
        hits = wide_engine.scheduler.residency.hit_tokens
        one = wide_engine.add(request(prompt, 12))
        others = [wide_engine.add(request(5 + n, 12)) for n in range(neighbours)]
        texts.append(finish(wide_engine, one))
        assert all(other.finish_reason is FinishReason.LENGTH for other in others)
        assert (wide_engine.scheduler.residency.hit_tokens > hits) == (len(texts) > 1)
    assert all(text == texts[0] or reference.tied_ids(prompt, text) for text in texts)
    assert reference.tied_ids(prompt, texts[0])
