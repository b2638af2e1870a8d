"""What a soak runs with: sizes small enough that slots, pool, queue and shared memory are all short now and then."""

from __future__ import annotations

from dataclasses import dataclass

STUCK_SECONDS = 3.0
SHARED_MEMORY_MIB = 256

SERVER_OPTIONS = (
    *("--max-batch-size", "4", "--kv-cache-tokens", "2048", "--max-queue-size", "16", "--grace-seconds", "10"),
    *("--model-control", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"),
    *("--parameter", f"stuck_seconds={STUCK_SECONDS}", "--parameter", "metrics_interval_ms=100"),
    *("--parameter", "lookahead_requests=4", "--parameter", "lookahead_bound=6"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """minutes: of traffic. seed: the same one draws the same requests and plan; what comes of them is the machine's.

    model: as for scripts/serve.
    """

    minutes: float
    seed: int
    model: str
    clients: int = 8

    @property
    def seconds_of_chaos(self) -> float:
        """The rest is steady, for memory to be watched."""
        return self.minutes * 60 * (0.45 if self.is_long else 0.65)

    @property
    def is_long(self) -> bool:
        """Whether restarts can be so far apart that none is in a row with another."""
        return self.minutes >= 10
