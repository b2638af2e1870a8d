"""Whole engine runs on the GPU executor: every token is the CPU executor's, whatever happens to the sequences."""

from typing import Any

import pytest
import torch

from backend.executor.device import HostDevice
from backend.executor.gpu import MOST_EDITS
from backend.request import Request, Sequence
from backend.scheduler.plan import BlockCopies, Chunk, StepPlan
from tests.engine.engines import request
from tests.executor.triton.toys import VOCAB, expected, gpu_executor, gpu_lab, run

NOTHING = BlockCopies([], [], [], [])
SAMPLED: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 2**64 - 1},
    {"temperature": 1.3, "top_k": 7, "seed": 5},
    {"temperature": 1.0, "top_p": 0.8, "min_p": 0.02, "seed": 6},
]


def prompt(length: int, salt: int = 0) -> tuple[int, ...]:
    return tuple((7 * n * n + 13 * n + 31 * salt) % VOCAB for n in range(length))


def mixed_requests(max_tokens: int = 5) -> list[Request]:
    """Greedy and sampled, short and longer than a step; the last shares a prefix with the second."""
    lengths = (3, 22, 6, 10)
    made = [request(prompt(n, i), max_tokens, **SAMPLED[i]) for i, n in enumerate(lengths)]
    return [*made, request(prompt(22, 1)[:15], max_tokens)]


@pytest.mark.parametrize("ahead", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_mixed_requests_in_chunks_through_a_prefix_cache_get_the_cpu_executors_tokens(ahead: bool) -> None:
    requests = mixed_requests()
    lab = gpu_lab(slots=3, step_tokens=12, ahead=ahead)
    assert run(lab.engine, requests) == expected(requests)
    assert lab.residency.hit_tokens > 0


@pytest.mark.parametrize(
    ("host_slots", "mode"),
    [
        (4, "swap"),  # room for one sequence: the next one is computed again
        pytest.param(12, "swap", marks=pytest.mark.nightly),
        pytest.param(0, "recompute", marks=pytest.mark.nightly),
    ],
)
def test_preempted_sequences_get_the_tokens_that_they_would_have_got(host_slots: int, mode: str) -> None:
    """Seven blocks of four tokens for three sequences that come to hold four each."""
    requests = [request(prompt(7, i), 9, **SAMPLED[i]) for i in range(3)]
    lab = gpu_lab(blocks=7, slots=3, step_tokens=12, host_slots=host_slots, mode=mode)
    assert run(lab.engine, requests) == expected(requests)
    assert (lab.residency.swapped_blocks > 0) == (host_slots > 0)
    assert (lab.residency.recomputed_tokens > 0) == (host_slots < 12)


def test_without_graphs_the_tokens_are_the_same() -> None:
    requests = mixed_requests(4)[2:4]
    assert run(gpu_lab(graph_sizes=()).engine, requests) == expected(requests)


def test_answers_to_one_prompt_share_it_through_copied_blocks() -> None:
    leader = request(prompt(6), 5)
    others = [request(prompt(6), 5, temperature=1.0, seed=n, leader=leader.request_id) for n in range(2)]
    lab = gpu_lab()
    assert run(lab.engine, [leader, *others]) == expected([leader, *others])
    assert lab.residency.hit_tokens >= 2 * 5


class LaggingDevice(HostDevice):
    """What is copied to the host shows only when the event recorded after it has been waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: list[torch.Tensor] = []
        self.shown: list[torch.Tensor] = []

    def host_tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        made = super().host_tensor(shape, dtype)
        if dtype == torch.int64:  # tokens; what goes to the device has been read when the copy returns
            self.buffers.append(made)
            self.shown.append(made.clone())
        return made

    def event(self) -> "LaggingEvent":
        return LaggingEvent(self)


class LaggingEvent:
    def __init__(self, device: LaggingDevice) -> None:
        self._device = device
        self._hidden: dict[int, torch.Tensor] = {}

    def record(self) -> None:
        pairs = enumerate(zip(self._device.buffers, self._device.shown, strict=True))
        self._hidden = {n: buffer.clone() for n, (buffer, shown) in pairs if not torch.equal(buffer, shown)}
        for n in self._hidden:
            self._show(n, torch.full_like(self._hidden[n], -1))

    def synchronize(self) -> None:
        while self._hidden:
            self._show(*self._hidden.popitem())

    def _show(self, n: int, values: torch.Tensor) -> None:
        self._device.buffers[n].copy_(values)
        self._device.shown[n].copy_(values)


def test_no_token_is_read_before_the_step_that_brings_it_has_been_waited_for() -> None:
    requests = [request(prompt(5, 1), 4), request(prompt(3), 4, temperature=1.0, seed=4)]
    device = LaggingDevice()
    lab = gpu_lab(device=device)
    assert run(lab.engine, requests) == expected(requests)
    handle = lab.executor.launch(StepPlan(99, [], [Chunk(decoding([1, 2], [1]), 0, 2, True)], NOTHING))
    assert any((buffer == -1).all() for buffer in device.buffers)  # the detector does hide them
    assert handle.collect()[0] >= 0


def decoding(tokens: list[int], blocks: list[int]) -> Sequence:
    """A sequence whose tokens but the last are in the pool."""
    made = Sequence(request(tuple(tokens), 20))
    made.blocks, made.num_computed = blocks, len(tokens)
    return made


def prefilled(executor: Any, tokens: list[int], blocks: list[int], step: int) -> Sequence:
    sequence = decoding(tokens, blocks)
    executor.launch(StepPlan(step, [], [Chunk(sequence, 0, len(tokens), True)], NOTHING))
    return sequence


def test_a_step_may_be_launched_before_its_input_token_has_reached_the_host() -> None:
    tokens = list(prompt(6))
    (whole,) = expected([request(tuple(tokens), 4)])
    executor, _ = gpu_executor()
    sequence, handles = decoding(tokens, [3, 1, 2]), []
    for step in range(4):
        chunk = Chunk(sequence, 0, 6, True)
        plan = StepPlan(step, [sequence], [], NOTHING) if step else StepPlan(0, [], [chunk], NOTHING)
        handles.append(executor.launch(plan))
        sequence.num_computed += 1  # the host learns of no token meanwhile
    assert [token for handle in handles for token in handle.collect()] == whole


def test_padding_of_a_decode_step_writes_to_the_null_block_alone() -> None:
    """Three sequences run in a graph of four; what they hold changes in one slot each."""
    executor, pool = gpu_executor(blocks=8, graph_sizes=(4,))
    sequences = [prefilled(executor, list(prompt(5, n)), [2 * n + 1, 2 * n + 2], n) for n in range(3)]
    for sequence in sequences:
        sequence.tokens.append(5)
        sequence.num_computed = 6
    before = pool.clone()
    assert executor.graphs.size_for(3) == 4
    executor.launch(StepPlan(9, sequences, [], NOTHING)).collect()
    changed = ((pool != before) & ~(pool.isnan() & before.isnan())).any(dim=(1, 2, 3, 5))
    written = {(int(block), int(slot)) for block, slot in changed.nonzero()}
    assert {place for place in written if place[0]} == {(2, 1), (4, 1), (6, 1)}
    assert {place[1] for place in written if not place[0]} <= {0}


def test_padding_does_not_change_what_the_others_get() -> None:
    results = []
    for sizes in ((4,), ()):
        executor, _ = gpu_executor(blocks=8, graph_sizes=sizes)
        sequences = [prefilled(executor, list(prompt(5, n)), [2 * n + 1, 2 * n + 2], n) for n in range(3)]
        results.append(executor.launch(StepPlan(9, sequences, [], NOTHING)).collect())
    assert results[0] == results[1]
    assert len(results[0]) == 3


def test_block_copies_come_before_the_steps_work_in_the_order_out_in_within() -> None:
    executor, pool = gpu_executor(blocks=8, host_slots=2)
    sequence = prefilled(executor, list(prompt(4)), [1], 0)
    kept = pool[1].clone()
    # Out of 1, into 2, within to 3; then the step itself overwrites block 1.
    copies = BlockCopies([(1, 0)], [(0, 2)], [(2, 3)], [sequence])
    other = decoding(list(prompt(4, 5)), [1])
    executor.launch(StepPlan(1, [], [Chunk(other, 0, 4, True)], copies)).collect()
    assert torch.equal(pool[2], kept)
    assert torch.equal(pool[3], kept)
    assert not torch.equal(pool[1], kept)


def test_a_step_of_copies_alone_brings_no_tokens() -> None:
    executor, pool = gpu_executor(blocks=3, host_slots=1)
    pool[1] = 1.5
    assert executor.launch(StepPlan(1, [], [], BlockCopies([(1, 0)], [(0, 2)], [], []))).collect() == []
    assert (pool[2] == 1.5).all()


def test_more_new_block_ids_than_travel_with_a_step_go_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.executor.gpu.MOST_EDITS", 2)
    assert MOST_EDITS > 2
    requests = [request(prompt(21), 3)]
    assert run(gpu_lab().engine, requests) == expected(requests)


def test_costs_are_measured_and_leave_the_sequences_blocks_alone() -> None:
    executor, pool = gpu_executor(blocks=4, host_slots=2)
    pool[1:] = 2.0
    assert executor.seconds_per_token(6) > 0.0
    assert executor.seconds_per_block() > 0.0
    assert (pool[1:] == 2.0).all()
    assert gpu_executor(blocks=4)[0].seconds_per_block() == 0.0
    executor.close()


def test_the_comparison_sees_a_wrong_block() -> None:
    """The detector: a table entry that the executor does not know of changes the text."""
    requests = [request(prompt(10), 4)]
    lab = gpu_lab()
    place = lab.executor._rows.place

    def wrong(works: list[Chunk]) -> Any:
        rows, edits = place(works)
        return rows, edits._replace(blocks=edits.blocks[::-1].copy())

    lab.executor._rows.place = wrong  # type: ignore[method-assign]
    assert run(lab.engine, requests) != expected(requests)
