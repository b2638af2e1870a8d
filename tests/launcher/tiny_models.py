"""Model repositories of a few lines each, so that the launcher's tests need no language model."""

from __future__ import annotations

import textwrap
from pathlib import Path

ECHO = """
    def execute(self, requests):
        return [pb.InferenceResponse([pb.get_input_tensor_by_name(r, "x")]) for r in requests]
"""

# Holds the interpreter lock, as a stub does in a long operation: it reads no message of the server meanwhile.
BUSY = """
    def execute(self, requests):
        import pathlib
        pathlib.Path({flag!r}).touch()
        while True:
            pass
"""

REFUSES = """
    def initialize(self, args):
        raise pb.TritonModelException({message!r})

    def execute(self, requests):
        return []
"""

DIES_LOADING = """
    def initialize(self, args):
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, requests):
        return []
"""

LOADS_SLOWLY = """
    def initialize(self, args):
        import time
        time.sleep(60)

    def execute(self, requests):
        return []
"""

STREAMS = """
    def execute(self, requests):
        for request in requests:
            prompt = pb.get_input_tensor_by_name(request, "text_input").as_numpy()[0, 0].decode()
            sender = request.get_response_sender()
            for piece in ("<", prompt, ">", " end"):
                sender.send(pb.InferenceResponse([
                    pb.Tensor("text_output", np.array([[piece.encode()]], dtype=object)),
                    pb.Tensor("num_output_tokens", np.array([[1]], dtype=np.int32)),
                ]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

ANSWERS = """
    def execute(self, requests):
        answers = []
        for request in requests:
            text = pb.get_input_tensor_by_name(request, "text_input").as_numpy()[0]
            count = pb.get_input_tensor_by_name(request, "max_tokens").as_numpy()[0]
            answer = np.array([b"%s|%d" % (text, count)], dtype=object)
            answers.append(pb.InferenceResponse([pb.Tensor("text_output", answer)]))
        return answers
"""

FAILS = """
    def execute(self, requests):
        raise ValueError("no such weights")
"""

WARM_CONFIG = """
backend: "python"
max_batch_size: 1
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
model_warmup [ {
  name: "first"
  batch_size: 1
  inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } }
} ]
"""

HEAD = "import numpy as np\nimport triton_python_backend_utils as pb\n\n\nclass TritonPythonModel:"

ECHO_CONFIG = """
backend: "python"
input [ { name: "x" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "x" data_type: TYPE_STRING dims: [ -1 ] } ]
"""

ANSWER_CONFIG = """
backend: "python"
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
"""

STREAM_CONFIG = """
backend: "python"
max_batch_size: 1
model_transaction_policy { decoupled: true }
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "temperature" data_type: TYPE_FP32 dims: [ 1 ] },
  { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] },
  { name: "exclude_input_in_output" data_type: TYPE_BOOL dims: [ 1 ] },
  { name: "seed" data_type: TYPE_UINT64 dims: [ 1 ] optional: true }
]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "num_output_tokens" data_type: TYPE_INT32 dims: [ 1 ] }
]
"""


def add_model(repository: Path, name: str, body: str = ECHO, config: str = ECHO_CONFIG) -> Path:
    """Write one Python-backend model into `repository`; returns `repository`."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    (repository / name / "1" / "model.py").write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    return repository
