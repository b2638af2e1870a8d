"""What each key of vllm_model's sampling_parameters means: mostly what the input of that name does."""

from __future__ import annotations

from backend import sampling_params as limits
from backend.serving import sampling_inputs
from backend.serving.entries import vllm_parameters
from backend.serving.request_parser import MAX_SEQUENCES
from scripts.interface_table.meanings import BIAS_RANGE, INPUTS, Meaning

_STRUCTURED = Meaning(
    "object with one of json (a JSON schema), json_object, regex, choice (a list of strings) or grammar (EBNF): what "
    "the answer conforms to, as with guided_decoding_guide",
    "as there; also written as a string",
    "none",
)

VLLM_KEYS: dict[str, Meaning] = {
    "max_tokens": INPUTS["max_tokens"]._replace(default=str(vllm_parameters.DEFAULT_MAX_TOKENS)),
    "min_tokens": INPUTS["min_tokens"],
    "temperature": INPUTS["temperature"]._replace(default=f"{vllm_parameters.DEFAULT_TEMPERATURE:g}"),
    "top_k": INPUTS["top_k"]._replace(text="draw from the k likeliest tokens; 0 or -1 from all", default="0"),
    "top_p": INPUTS["top_p"]._replace(default="1"),
    "min_p": INPUTS["min_p"],
    "seed": INPUTS["seed"]._replace(text="same seed, same text, whatever else runs; -1 is none"),
    "n": Meaning("so many answers, one element of each output for each", f"[1, {MAX_SEQUENCES}]", "1"),
    "stop": INPUTS["stop_words"]._replace(text="a string or a list; the text ends exactly before the first of them"),
    "stop_token_ids": INPUTS["stop_token_ids"],
    "ignore_eos": INPUTS["ignore_eos"],
    "bad_words": INPUTS["bad_words"],
    "logit_bias": Meaning(
        "object of token id and number: added to the logits",
        f"at most {sampling_inputs.MAX_BIAS_IDS}, {BIAS_RANGE}",
        "none",
    ),
    "structured_outputs": _STRUCTURED,
    "guided_decoding": _STRUCTURED._replace(text="older name of structured_outputs"),
    "logprobs": Meaning(
        "log-probabilities of so many of the likeliest tokens, and the one taken",
        f"[0, {limits.MAX_TOP_LOG_PROBS}]",
        "none",
    ),
    "repetition_penalty": INPUTS["repetition_penalty"],
    "presence_penalty": INPUTS["presence_penalty"],
    "frequency_penalty": INPUTS["frequency_penalty"],
    "priority": INPUTS["priority"],
    "request_priority": INPUTS["priority"]._replace(text="the same"),
    "tenant": INPUTS["tenant"],
    "cache_salt": INPUTS["cache_salt"],
}
