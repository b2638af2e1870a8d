"""Counts the words of a text."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """`text` BYTES [batch, 1] -> `words` INT32 [batch, 1]."""

    def execute(self, requests):
        """Answer each request with the number of words, split at white space."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
        counts = [[len(text.decode("utf-8", "replace").split())] for (text,) in texts]
        return pb_utils.InferenceResponse([pb_utils.Tensor("words", np.array(counts, np.int32))])
