"""Through the engine's thread every request that was asked is counted in exactly one outcome."""

import threading
import time
from collections import Counter

from backend.request import Request
from backend.serving.engine_thread import EngineThread
from backend.serving.metrics.counts import EngineCounts
from backend.serving.response_stream import Chunk, ResponseStream
from backend.serving.sender_pool import SenderPool
from tests.engine.engines import oracle_engine, request

PATIENCE = 20.0


class Client:
    def __init__(self) -> None:
        self.num_tokens = 0
        self.first, self.done = threading.Event(), threading.Event()

    def send(self, chunk: Chunk) -> None:
        self.num_tokens += chunk.num_output
        self.first.set()
        if chunk.final:
            self.done.set()

    def is_cancelled(self) -> bool:
        return False


class Asked:
    """An engine behind its thread, whose steps can be held; and what was asked of it."""

    def __init__(self) -> None:
        self.engine, self.executor = oracle_engine(slots=8, blocks=400, step_tokens=64)
        self.counts = EngineCounts()
        self.senders = SenderPool(1)
        self.thread = EngineThread(self.engine, self.senders, counts=self.counts)
        self.clients: list[tuple[Request, Client]] = []
        self.thread.start()

    def ask(self, asked: Request) -> Client:
        client = Client()
        self.clients.append((asked, client))
        self.thread.submit(asked, ResponseStream(client, streaming=True, echo=(), text=None))
        return client


def test_every_request_has_one_outcome_and_every_token_that_a_client_got_is_counted() -> None:
    asked = Asked()
    for level in (1, 2, 2, 3):
        assert asked.ask(request(5, 4 + level, level)).done.wait(PATIENCE)
    assert asked.ask(request(150, 100, 1)).done.wait(PATIENCE)  # beyond the length limit: refused
    launch = asked.executor.launch
    asked.executor.launch = lambda plan: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    assert asked.ask(request(5, 3, 3)).done.wait(PATIENCE)  # its step fails: error
    step = threading.Semaphore(3)

    def slow_launch(plan: object) -> object:
        step.acquire(timeout=PATIENCE)
        return launch(plan)  # type: ignore[arg-type]

    asked.executor.launch = slow_launch  # type: ignore[assignment,method-assign]
    leaving = request(5, 150, 2)
    client = asked.ask(leaving)
    assert client.first.wait(PATIENCE)
    asked.thread.cancel(leaving.request_id)
    step.release(3)
    assert client.done.wait(PATIENCE)
    still_open = asked.ask(request(5, 150, 1))
    step.release(3)
    assert still_open.first.wait(PATIENCE)
    asked.thread.refuse("the server is shutting down")
    assert asked.ask(request(5, 5, 3)).done.wait(PATIENCE)  # refused
    unloading = threading.Thread(target=asked.thread.stop)
    unloading.start()
    while asked.thread.num_open < 2:  # the open one, and the word to end, which is read when the step under way goes on
        time.sleep(0.001)
    step.release(1000)
    unloading.join(PATIENCE)
    asked.ask(request(5, 5, 1))  # refused, as the engine has ended
    asked.senders.stop()

    assert all(client.done.is_set() for _, client in asked.clients)
    outcomes = {key: count for key, count in asked.counts.outcomes().items() if count}
    assert sum(outcomes.values()) == len(asked.clients)
    assert outcomes == {
        ("length", "1"): 1,
        ("error", "1"): 1,
        ("length", "2"): 2,
        ("length", "3"): 1,
        ("refused", "1"): 2,
        ("error", "3"): 1,
        ("cancelled", "2"): 1,
        ("refused", "3"): 1,
    }
    tokens: Counter[int] = Counter()
    for one, client in asked.clients:
        tokens[one.level] += client.num_tokens
    assert {level: of.generated_tokens for level, of in asked.counts.levels.items()} == tokens
