"""The threads that hand responses to Triton Server, so that the engine never waits for one."""

from __future__ import annotations

import logging
import queue
import threading

from backend.serving.response_stream import ResponseStream

_log = logging.getLogger(__name__)


class SenderPool:
    """A few threads, each with its own queue. A stream keeps to one thread, so its responses stay in order."""

    def __init__(self, num_threads: int) -> None:
        self._queues: list[queue.SimpleQueue[ResponseStream | None]] = [queue.SimpleQueue() for _ in range(num_threads)]
        self._threads = [
            threading.Thread(target=self._run, args=(q,), name=f"sender-{n}", daemon=True)
            for n, q in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, stream: ResponseStream, key: int) -> None:
        """Have what is new in the stream sent, if there is anything. key: constant over the life of a stream."""
        if stream.wants_sending():
            self._queues[key % len(self._queues)].put(stream)

    def stop(self) -> None:
        """Send what is queued, then end the threads."""
        for q in self._queues:
            q.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self, q: queue.SimpleQueue[ResponseStream | None]) -> None:
        while (stream := q.get()) is not None:
            chunk = stream.take()
            if chunk is None:
                continue
            try:
                stream.sender.send(chunk)
            except Exception as error:  # a client's broken channel must not end the thread that serves the others
                _log.warning("a response could not be sent: %s", error)
