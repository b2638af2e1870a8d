"""How long the last of some requests at once waits for its first token on an idle server."""

from __future__ import annotations

import random
import time

from generate_stream import Client, ServerError
from tqdm import tqdm

from .timing import percentiles

SERVERS_PATIENCE = 0.5
"""Seconds after which Triton Server's batcher looks at its queue by itself."""


def bursts(client: Client, requests: int, rounds: int, pause: float, seed: int = 1) -> dict[str, object]:
    """The JSON line. Each request is for one token after a few words of its own; ``pause`` seconds between bursts."""
    rng = random.Random(seed)
    last = []
    for _ in tqdm(range(rounds), desc="bursts", disable=None, leave=False):
        inputs = [{"text_input": _text(rng), "max_tokens": 1, "stream": True} for _ in range(requests)]
        begun = time.perf_counter()
        for finished in client.generate_all(inputs, 2):
            if finished.error:
                raise ServerError(finished.error)
        last.append(time.perf_counter() - begun)
        time.sleep(pause)
    return {
        "bench": "bursts",
        "requests": requests,
        "rounds": rounds,
        "last_ttft_ms": percentiles(last) | {"max": round(max(last) * 1e3, 1)},
        "beyond_servers_patience": sum(seconds > SERVERS_PATIENCE for seconds in last),
    }


def _text(rng: random.Random) -> bytes:
    return " ".join(f"{rng.randrange(10, 99)}" for _ in range(6)).encode()
