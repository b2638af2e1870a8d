"""What each input means: the words behind docs/interfaces.md."""

from __future__ import annotations

from typing import NamedTuple

from backend import sampling_params as limits
from backend.beam_params import MAX_DIVERSITY_RATE, MAX_LENGTH_PENALTY
from backend.serving import guided_inputs, sampling_inputs, word_inputs
from backend.serving.entries import refusals, retention
from backend.serving.entries.text_request import LLMAPI_MAX_TOKENS
from backend.serving.entries.token_inputs import MAX_BATCH
from backend.serving.request_parser import MAX_LABEL_BYTES, MAX_SEQUENCES, MAX_STOP_WORD_BYTES, MAX_STOP_WORDS
from backend.serving.tracing.context import MAX_BYTES


class Meaning(NamedTuple):
    """range and default: as words for a table."""

    text: str
    range: str = ""
    default: str = ""


_FLAG = "true, false"
_MIB = limits.MAX_LOGITS_BYTES >> 20
_ID = "[0, vocabulary)"
_GREEDY = "greedy, unless another sampling input is given; then none"
_ADDED = f"[{-limits.MAX_ADDED_PENALTY:g}, {limits.MAX_ADDED_PENALTY:g}]"
BIAS_RANGE = f"[{-limits.MAX_BIAS:g}, {limits.MAX_BIAS:g}]"
_TEMPERATURE = Meaning(
    "logits are divided by it; 0 (and less than 1e-5) takes the likeliest token",
    f"[0, {limits.MAX_TEMPERATURE:g}]",
    "greedy, unless another sampling input is given; then 1",
)
_TOP_K = Meaning("draw from the k likeliest tokens; 0 from all; 1 is greedy", "[0, 2^31)", _GREEDY)
_TOP_P = Meaning(
    "draw from the likeliest tokens that together have this probability; 0 means not set", "(0, 1]", _GREEDY
)
_FREQUENCY = Meaning("subtracted from a token's logit for each time it is in the answer", _ADDED, "0")
_PRESENCE = Meaning("subtracted from a token's logit if it is in the answer", _ADDED, "0")
_REPETITION = Meaning(
    "divides positive and multiplies negative logits of tokens in prompt and answer",
    f"[{1 / limits.MAX_REPETITION_PENALTY:g}, {limits.MAX_REPETITION_PENALTY:g}]",
    "1",
)
_SEED = Meaning("same seed, same text, whatever else runs", "64 bits", "each request another")
_STOP_WORDS = Meaning(
    'the text ends exactly before the first of them; "" means none',
    f"at most {MAX_STOP_WORDS}, each at most {MAX_STOP_WORD_BYTES} bytes",
    "none",
)
_MAX_TOKENS = Meaning("tokens to generate; prompt and this must fit the limits", "1 and more")
_STREAM = Meaning("several responses, each with what is new; else one", _FLAG, "false")
_EXCLUDE = Meaning("whole answers begin with the prompt unless this is true; streams never repeat it", _FLAG, "false")
_STOP = Meaning("end the running request that has the same request id", _FLAG, "false")
_LENGTHS = Meaning("tokens of the prompt; what follows in its row is padding", "[1, width of the row]")
_MIN_TOKENS = Meaning("no end of sequence, stop token or stop list before so many tokens", "[0, max_tokens]", "0")
_LOG_PROBS = Meaning("return log-probabilities of the new tokens", _FLAG, "false")
_METRICS = Meaning("return blocks reused and allocated, and times", _FLAG, "false")
_RETENTION = "taken only if it asks for what happens anyway: cached blocks go by their last use"
_BEAMS = "with a beam_width above 1: "
_LENGTH_PENALTY = Meaning(
    _BEAMS + "beams are ranked by their log-probability over their length to this power; without a search 0 or 1",
    f"[{-MAX_LENGTH_PENALTY:g}, {MAX_LENGTH_PENALTY:g}]",
    "0",
)
_WORDS_ROWS = (
    f"[2, N]: row 0 ids one word after the other, row 1 where each ends, then -1; at most {limits.MAX_WORDS} words"
)
_WORDS = f"at most {word_inputs.MAX_WORDS}, each at most {word_inputs.MAX_WORD_BYTES} bytes"


def _beside_stop(meaning: Meaning) -> Meaning:
    return meaning._replace(text=meaning.text + "; in ensemble_uint32 taken beside stop alone, where it means nothing")


def _decay(allowed: str) -> Meaning:
    return Meaning("taken with a value that changes nothing: top_p stays as it is", allowed, allowed)


def _refused(refusal: refusals.Refusal) -> Meaning:
    allowed = {None: "none", 0: "0 or false", "": '""'}[refusal.neutral]
    return Meaning(f"refused: {refusal.why}", allowed, "none")


INPUTS: dict[str, Meaning] = (
    {name: _refused(refusal) for name, refusal in refusals.UNSERVED.items()}
    | {
        "text_input": Meaning("the prompt; special tokens written in it are read as such", "at least one token, UTF-8"),
        "max_tokens": _MAX_TOKENS,
        "request_output_len": _beside_stop(_MAX_TOKENS),
        "stream": _STREAM,
        "streaming": _STREAM,
        "temperature": _TEMPERATURE,
        "top_k": _TOP_K,
        "runtime_top_k": _TOP_K,
        "top_p": _TOP_P,
        "runtime_top_p": _TOP_P,
        "min_p": Meaning("leave out tokens less likely than this times the likeliest", "[0, 1]", "0"),
        "seed": _SEED,
        "random_seed": _SEED._replace(text="older name of seed"),
        "stop_words": _STOP_WORDS,
        "bad_words": Meaning('words that do not occur in the answer; "" means none', _WORDS, "none"),
        "stop_words_list": Meaning("the answer ends with the first of these token sequences", _WORDS_ROWS, "none"),
        "bad_words_list": Meaning("token sequences that do not occur in the answer", _WORDS_ROWS, "none"),
        "stop_token_ids": Meaning(
            "tokens that end the answer, with reason stop", f"{_ID}, at most {limits.MAX_STOP_IDS}", "none"
        ),
        "end_id": Meaning(
            "the end-of-sequence token; in tensorrt_llm none or -1 means that nothing but the length ends the answer",
            _ID,
            "the model's own; in tensorrt_llm none",
        ),
        "pad_id": Meaning(
            "stands behind the shorter ones of several beams; nothing else is padded", _ID, "the smallest end id, or 0"
        ),
        "num_return_sequences": Meaning(
            "so many answers, told apart by sequence_index; of a search the best so many beams, in one response",
            f"[1, {MAX_SEQUENCES}], [1, beam_width]",
            "1; all beams",
        ),
        "ignore_eos": Meaning("no token ends the answer as end of sequence", _FLAG, "false"),
        "exclude_input_in_output": _EXCLUDE,
        "repetition_penalty": _REPETITION,
        "presence_penalty": _PRESENCE,
        "frequency_penalty": _FREQUENCY,
        "min_tokens": _MIN_TOKENS,
        "min_length": _MIN_TOKENS._replace(text="older name of min_tokens"),
        "embedding_bias": Meaning(
            "added to the logits", f"one number per token of the vocabulary, {BIAS_RANGE}", "none"
        ),
        "embedding_bias_words": Meaning("words whose tokens get a bias", _WORDS, "none"),
        "embedding_bias_weights": Meaning("the biases of embedding_bias_words", f"{BIAS_RANGE}, one per word", "none"),
        "logit_bias_ids": Meaning("tokens that get a bias", f"{_ID}, at most {sampling_inputs.MAX_BIAS_IDS}", "none"),
        "logit_bias_weights": Meaning("the biases of logit_bias_ids", f"{BIAS_RANGE}, one per id", "none"),
        "guided_decoding_guide_type": Meaning(
            "the answer conforms to a guide: json (any JSON object) needs no more, the others are written in "
            "guided_decoding_guide. The end of sequence can come only where the guide may end; a guide that is "
            "complete ends the answer, with reason stop where no end of sequence may come",
            'json, json_schema, regex, ebnf_grammar; "" is none',
            "none",
        ),
        "guided_decoding_guide": Meaning(
            "a JSON schema, a regular expression that the whole answer matches (no look-around, no references back), "
            "or rules as llama.cpp writes them, beginning at root",
            f"at most {guided_inputs.MAX_GUIDE_BYTES} bytes, a grammar {guided_inputs.MAX_EBNF_BYTES}",
            "none",
        ),
        "return_log_probs": _LOG_PROBS,
        "num_log_probs": Meaning(
            "and those of so many of the likeliest tokens at each place", f"[0, {limits.MAX_TOP_LOG_PROBS}]", "0"
        ),
        "return_context_logits": Meaning(
            "return the logits of every position of the prompt, with the last response of the first answer; then "
            "nothing is taken from the prefix cache",
            f"{_FLAG}; at most {_MIB} MiB, prompt by vocabulary by 4 bytes; not on a GPU",
            "false",
        ),
        "return_generation_logits": Meaning("return the logits of the new tokens", _FLAG, "false"),
        "return_perf_metrics": _METRICS,
        "return_kv_cache_reuse_stats": _METRICS._replace(text="older name of return_perf_metrics"),
        "return_num_input_tokens": Meaning("return num_input_tokens", _FLAG, "true; false in vllm_model"),
        "return_num_output_tokens": Meaning("return num_output_tokens", _FLAG, "true; false in vllm_model"),
        "beam_width": Meaning(
            "above 1 a search over so many beams in place of a draw, whose answers, the best first, come in one "
            "response. Beside it are refused: streaming, a guide, num_log_probs, return_generation_logits, and "
            "temperature, top_k, top_p and min_p with a value that would change a draw; a seed changes nothing",
            "[1, max_beam_width]; not on a GPU",
            "1",
        ),
        "length_penalty": _LENGTH_PENALTY,
        "len_penalty": _LENGTH_PENALTY,
        "early_stopping": Meaning(
            _BEAMS + "true ends the search when so many beams have ended, false when besides none under way would "
            "beat the worst of those if it ended now. As custom parameter an integer: 1, 0, or another, when none can "
            "beat it however it goes on",
            _FLAG,
            "true",
        ),
        "beam_search_diversity_rate": Meaning(
            _BEAMS + "at each step so much times a beam's rank, from 0, is added to its score",
            f"[0, {MAX_DIVERSITY_RATE:g}]",
            "0",
        ),
        "runtime_top_p_min": _decay("0"),
        "runtime_top_p_decay": _decay("1"),
        "runtime_top_p_reset_ids": _decay("-1"),
        "priority": Meaning(
            "1 is the most urgent; also as custom parameter request_priority",
            "1 to priority_levels, 0 for the default",
            "2",
        ),
        "tenant": Meaning(
            "whose fair share is used; also as custom parameter", f"at most {MAX_LABEL_BYTES} bytes", '""'
        ),
        "cache_salt": Meaning(
            "prefixes are shared among requests of one salt only; also as custom parameter",
            f"at most {MAX_LABEL_BYTES} bytes",
            '""',
        ),
        "input_ids": _beside_stop(
            Meaning(f"the prompt; in tensorrt_llm up to {MAX_BATCH} prompts, each a request", _ID)
        ),
        "input_lengths": _beside_stop(_LENGTHS),
        "stop": _STOP,
        "engine_key": Meaning(
            "with stop: the engine's own key of the request to stop, which it tells its sender alone", "64 bits", "none"
        ),
        "detokenize": Meaning("return what the detokenizer needs", _FLAG, "false"),
        "announce": Meaning(
            "a first response at once, with engine_key alone: the request is in the engine", _FLAG, "false"
        ),
        "trace_context": Meaning(
            "what the request's spans go under where the engine traces and the server has no trace of it",
            f"JSON of W3C's traceparent and tracestate, at most {MAX_BYTES} bytes",
            "none",
        ),
        "sampling_parameters": Meaning("vLLM's sampling parameters, a JSON object; its keys are below", "JSON", "{}"),
        "return_finish_reason": Meaning("return finish_reason", _FLAG, "false"),
        "return_stop_reason": Meaning("return stop_reason", _FLAG, "false"),
        "return_cumulative_logprob": Meaning("return the sum of the log-probabilities", _FLAG, "false"),
        "return_logprobs": Meaning("return logprobs, as many as the key logprobs says", _FLAG, "false"),
        "sampling_param_best_of": Meaning("taken with a value that changes nothing", "1", "1"),
        "sampling_param_temperature": _TEMPERATURE,
        "sampling_param_top_k": _TOP_K,
        "sampling_param_top_p": _TOP_P,
        "sampling_param_frequency_penalty": _FREQUENCY,
        "sampling_param_presence_penalty": _PRESENCE,
        "sampling_param_max_tokens": _MAX_TOKENS._replace(default=str(LLMAPI_MAX_TOKENS)),
        "sampling_param_stop": _STOP_WORDS,
        "sampling_param_seed": _SEED,
        "sampling_param_exclude_input_from_output": _EXCLUDE._replace(
            text="the text begins with the prompt unless true"
        ),
        "sampling_param_return_perf_metrics": _METRICS,
        "QUERY": Meaning("the prompt's text", "UTF-8"),
        "BAD_WORDS_DICT": Meaning("words to forbid", "UTF-8", "none"),
        "EMBEDDING_BIAS_WORDS": Meaning("words whose tokens get a bias", "UTF-8", "none"),
        "EMBEDDING_BIAS_WEIGHTS": Meaning("their biases", BIAS_RANGE, "none"),
        "TOKENS_BATCH": Meaning("token ids", _ID),
        "TEXT_SPAN": Meaning("first and last byte to show of what each row stands for", "bytes", "all"),
        "ENGINE_KEY": Meaning(
            "the engine's number of the request, to stop it when its client has gone; 0 is nobody's", "64 bits"
        ),
    }
    | {name: Meaning(_RETENTION, "", "none") for name in retention.NAMES}
)
for _name in retention.NAMES:
    INPUTS[_name] = INPUTS[_name]._replace(
        range={"priorities": str(retention.DEFAULT_PRIORITY), "priority": str(retention.DEFAULT_PRIORITY)}.get(
            _name.rsplit("_", 1)[-1], "-1" if _name.endswith("_ms") else "0 and more, ends also -1"
        )
    )
