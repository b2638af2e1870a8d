"""One real server, and one gateway before it, for all tests of the gateway that need them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.gateway_process import Gateway, running_gateway
from tests.server_fixture import RunningServer
from tests.step_trace import trace_file_fixture

MAX_SEQ_LEN = 2048
QUEUE = 8


trace_file = trace_file_fixture("package")


@pytest.fixture(scope="package")
def server(smollm2_dir: Path, trace_file: Path) -> Iterator[RunningServer]:
    parameter = {"step_trace_file": trace_file, "cancel_poll_ms": 5, "lookahead_requests": 2, "lookahead_bound": 4}
    options = {"max_batch_size": 4, "max_seq_len": MAX_SEQ_LEN, "max_queue_size": QUEUE, "parameter": parameter}
    with RunningServer.start(smollm2_dir, **options) as running:
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture(scope="package")
def gateway(server: RunningServer) -> Iterator[Gateway]:
    with running_gateway(server.grpc_url) as running:
        yield running
