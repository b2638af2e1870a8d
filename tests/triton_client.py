"""A client of the ensemble for tests: tritonclient over gRPC streaming, one stream per request."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

PATIENCE = 300.0
DTYPES: dict[str, Any] = {
    "text_input": np.object_, "max_tokens": np.int32, "stream": np.bool_, "temperature": np.float32,
    "top_k": np.int32, "top_p": np.float32, "min_p": np.float32, "seed": np.uint64, "stop_words": np.object_,
    "end_id": np.int32, "ignore_eos": np.bool_, "exclude_input_in_output": np.bool_, "priority": np.int32,
    "input_ids": np.int32, "input_lengths": np.int32, "request_output_len": np.int32, "streaming": np.bool_,
    "runtime_top_k": np.int32,
    "stop_token_ids": np.int32, "stop": np.bool_,
    "num_return_sequences": np.int32, "tenant": np.object_, "cache_salt": np.object_,
    "repetition_penalty": np.float32, "presence_penalty": np.float32, "frequency_penalty": np.float32,
    "min_tokens": np.int32, "min_length": np.int32, "random_seed": np.uint64, "pad_id": np.int32,
    "bad_words": np.object_, "embedding_bias_words": np.object_, "embedding_bias_weights": np.float32,
    "embedding_bias": np.float32, "logit_bias_ids": np.int32, "logit_bias_weights": np.float32,
    "bad_words_list": np.int32, "stop_words_list": np.int32, "num_log_probs": np.int32,
    "beam_width": np.int32, "length_penalty": np.float32, "return_log_probs": np.bool_,
    "return_context_logits": np.bool_, "return_generation_logits": np.bool_, "return_perf_metrics": np.bool_,
    "guided_decoding_guide_type": np.object_, "guided_decoding_guide": np.object_,
    "return_num_input_tokens": np.bool_, "return_num_output_tokens": np.bool_,
}  # fmt: skip


@dataclass
class Answer:
    """Everything that came back for one request. times: seconds from sending to each response."""

    chunks: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    by_sequence: dict[int, str] = field(default_factory=dict)
    num_input: int = 0
    num_output: int = 0
    finals: int = 0
    error: str = ""

    @property
    def text(self) -> str:
        return "".join(self.chunks)

    @property
    def reason(self) -> str:
        assert all(r == "" for r in self.reasons[:-1])
        return self.reasons[-1]


def tensors(fields: dict[str, Any]) -> list[grpcclient.InferInput]:
    inputs = []
    for name, value in fields.items():
        values = np.array([np.atleast_1d(np.array(value, dtype=DTYPES[name]))])
        tensor = grpcclient.InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
        tensor.set_data_from_numpy(values)
        inputs.append(tensor)
    return inputs


def ask(
    url: str,
    model: str = "ensemble",
    *,
    queue_priority: int = 0,
    timeout: int | None = None,
    request_id: str = "",
    parameters: Any = None,
    **fields: Any,
) -> Answer:
    """Send one request and wait for its final response."""
    responses: queue.SimpleQueue[tuple[Any, InferenceServerException | None]] = queue.SimpleQueue()
    answer = Answer()
    with grpcclient.InferenceServerClient(url) as client:
        client.start_stream(callback=lambda result, error: responses.put((result, error)))
        start = time.perf_counter()
        client.async_stream_infer(
            model,
            tensors(fields),
            request_id=request_id,
            enable_empty_final_response=True,
            priority=queue_priority,
            timeout=timeout,
            parameters=parameters,
        )
        final = False
        while not final:
            result, error = responses.get(timeout=PATIENCE)
            answer.times.append(time.perf_counter() - start)
            if error is not None:
                answer.error = error.message()
                break
            final = result.get_response().parameters["triton_final_response"].bool_param
            answer.finals += final
            _read(result, answer)
    return answer


def collect(url: str, model: str, **fields: Any) -> list[dict[str, Any]]:
    """All responses to one request, each with every output that it carries; an error is raised."""
    responses: queue.SimpleQueue[tuple[Any, InferenceServerException | None]] = queue.SimpleQueue()
    found: list[dict[str, Any]] = []
    with grpcclient.InferenceServerClient(url) as client:
        client.start_stream(callback=lambda result, error: responses.put((result, error)))
        client.async_stream_infer(model, tensors(fields), enable_empty_final_response=True)
        final = False
        while not final:
            result, error = responses.get(timeout=PATIENCE)
            if error is not None:
                raise error
            response = result.get_response()
            found.append({output.name: result.as_numpy(output.name) for output in response.outputs})
            final = response.parameters["triton_final_response"].bool_param
    return found


def _read(result: grpcclient.InferResult, answer: Answer) -> None:
    text = result.as_numpy("text_output")
    if text is not None:
        piece = text.reshape(-1)[0].decode()
        answer.chunks.append(piece)
        index = int(result.as_numpy("sequence_index").reshape(-1)[0])
        answer.by_sequence[index] = answer.by_sequence.get(index, "") + piece
    ids = result.as_numpy("output_ids")
    if ids is not None:
        answer.ids.extend(ids.reshape(-1).tolist())
    reason = result.as_numpy("finish_reason")
    if reason is not None:
        answer.reasons.append(reason.reshape(-1)[0].decode())
        answer.num_input = int(result.as_numpy("num_input_tokens").reshape(-1)[0])
        answer.num_output += int(result.as_numpy("num_output_tokens").reshape(-1)[0])


def ask_all(url: str, requests: Sequence[dict[str, Any]], at_once: int) -> list[Answer]:
    """Answers in the order of the requests, ``at_once`` of them under way at any time."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda fields: ask(url, **fields), requests))


def in_background(call: Callable[[], Answer]) -> tuple[threading.Thread, list[Answer]]:
    """Run a request beside the test; its answer is in the list once the thread has ended."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers
