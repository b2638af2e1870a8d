"""A step with chunks is ended early for someone more urgent; the others lose time, never a token."""

from pathlib import Path

import pytest

from backend.engine import StepFailedError
from backend.executor.interruption import Interruption
from backend.scheduler.scheduler import Scheduler
from tests.engine.engines import Clock, check_lone_runs, idle, oracle_engine, outputs, request, run, small_engine
from tests.model.tiny_models import save_tiny


def test_an_arrival_ends_a_less_urgent_prompts_step_and_runs_in_the_next() -> None:
    engine, executor = oracle_engine(step_tokens=64, interruptible=True)
    low = engine.add(request(40, 3, 3))
    engine.step()
    assert [c.num_tokens for c in executor.plans[-1].chunks] == [40]
    engine.interrupt(1)
    urgent = engine.add(request(9, 2, 1))
    engine.step()
    plan = executor.plans[-1]
    assert (plan.chunks[0].sequence, plan.chunks[0].start) == (urgent, 0)
    assert low.num_output == 0
    run(engine)
    check_lone_runs([low, urgent])
    assert idle(engine)


def test_cursors_that_stay_moved_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "retract", lambda *_: None)
    with pytest.raises(StepFailedError):
        test_an_arrival_ends_a_less_urgent_prompts_step_and_runs_in_the_next()


@pytest.mark.parametrize("level", [2, 3])
def test_an_arrival_that_is_not_more_urgent_than_all_in_the_step_ends_nothing(level: int) -> None:
    engine, executor = oracle_engine(step_tokens=64, interruptible=True)
    sequences = [engine.add(request(20, 3, 2)), engine.add(request(20, 3, 3))]
    engine.step()
    engine.interrupt(level)
    engine.step()
    assert len(executor.plans[-1].decodes) == 2
    run(engine)
    check_lone_runs(sequences)


def test_a_step_of_decodes_alone_runs_to_its_end() -> None:
    engine, executor = oracle_engine(interruptible=True)
    low = engine.add(request(4, 5, 3))
    engine.step()
    engine.step()
    assert executor.plans[-1].decodes == [low]
    engine.interrupt(1)
    engine.step()
    engine.step()
    assert low.num_output == 3


def test_long_steps_come_back_ten_seconds_after_an_interruption() -> None:
    clock = Clock()
    engine, executor = oracle_engine(
        blocks=400, step_tokens=100, max_seq_len=900, clock=clock, interruptible=True, max_step_seconds=0.020
    )
    for tokens in (1, 100) * 4:
        engine.scheduler.step_time.observe(tokens, 0.001 * tokens)
    engine.scheduler.step_time.observe = lambda *_: None  # type: ignore[method-assign] - steps take no time here
    engine.add(request(800, 1, 3))
    engine.step()
    engine.interrupt(1)
    sizes = []
    for now in (0.0, 5.0, 9.9, 10.1):
        clock.now = now
        engine.step()
        sizes.append(executor.plans[-1].chunks[0].num_tokens)
    assert executor.plans[0].chunks[0].num_tokens == 100
    assert sizes == pytest.approx([20, 20, 20, 100], abs=1)


def test_the_real_model_says_the_same_though_its_steps_are_ended_in_any_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save_tiny("llama-tied", tmp_path)
    prompts = [tuple(range(3, 40)), tuple(range(50, 75))]

    def texts(layers: list[int]) -> tuple[list[list[int]], int]:
        """layers: after so many looks of a step, it is ended; one step after the other."""
        looks, ended = 0, 0

        def check(interruption: Interruption) -> None:
            nonlocal looks, ended
            looks += 1
            if layers and interruption._level and looks >= layers[0]:
                layers.pop(0)
                looks, ended = 0, ended + 1
                interruption.interrupt(1)
            honest(interruption)

        honest = Interruption.check
        monkeypatch.setattr(Interruption, "check", check)
        engine = small_engine(saved.path, max_batch_size=4)
        sequences = [engine.add(request(prompt, 6, 2)) for prompt in prompts]
        run(engine)
        monkeypatch.setattr(Interruption, "check", honest)
        assert idle(engine)
        engine.close()
        return outputs(sequences), ended

    undisturbed, none = texts([])
    disturbed, ended = texts([1, 2, 1, 2, 2, 1])
    assert (none, ended) == (0, 6)
    assert disturbed == undisturbed
