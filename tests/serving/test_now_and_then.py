from backend.serving.now_and_then import NowAndThen


def test_each_key_has_its_turn_at_once_and_then_once_in_an_interval() -> None:
    times = [0.0]
    ask = NowAndThen(0.5, lambda: times[-1])
    turns = []
    for time in (0.0, 0.2, 0.4, 0.6, 0.8, 1.2):
        times.append(time)
        turns.append((ask.due(7), time > 0.3 and ask.due(8)))
    assert turns == [(True, False), (False, False), (False, True), (True, False), (False, False), (True, True)]


def test_keys_that_are_gone_are_forgotten_and_those_that_are_not_are_kept() -> None:
    clock = iter(range(10_000))
    ask = NowAndThen(100, lambda: float(next(clock)))
    assert all(ask.due(key) for key in range(5000))
    assert len(ask._turns) <= 1025
    assert not ask.due(4999)
