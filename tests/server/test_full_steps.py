"""A queue of the tokenizer that is too small is the operator's mistake: it costs answers, and nothing hangs.

Of the detokenizer, whose steps come in the midst of a stream, it is refused at load (test_loading.py).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_fixture import RunningServer
from tests.triton_client import ask, ask_all

pytestmark = [pytest.mark.server, pytest.mark.nightly]
REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
QUEUE = "priority_levels: 3 default_priority_level: 2"
BOUND = f"{QUEUE} default_queue_policy {{ max_queue_size: 1 timeout_action: REJECT }}"


@pytest.fixture(scope="module")
def server(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("bounded") / "models"
    shutil.copytree(REPOSITORY, repository, ignore=shutil.ignore_patterns("__pycache__"))
    config = repository / "preprocessing" / "config.pbtxt"
    assert QUEUE in config.read_text()
    config.write_text(config.read_text().replace(QUEUE, BOUND))
    yield from RunningServer.fixture(smollm2_dir, model_repository=repository, max_batch_size=8)


def test_streams_end_though_the_tokenizers_queue_holds_one_request(server: RunningServer) -> None:
    asked = [{"text_input": f"Number {n}:", "max_tokens": 8, "stream": True, "ignore_eos": True} for n in range(64)]
    answers = ask_all(server.grpc_url, asked, 64)
    for answer in answers:
        if answer.error:
            assert "Exceeds maximum queue size" in answer.error
        else:
            assert (answer.finals, answer.num_output) == (1, 8)
    assert any(answer.error for answer in answers), "the bound was never met: the test shows nothing"
    # The engine checks its pool whenever it runs empty, and dies otherwise.
    answer = ask(server.grpc_url, text_input="The capital of France is", max_tokens=2, exclude_input_in_output=True)
    assert (answer.error, answer.text) == ("", " Paris.")
