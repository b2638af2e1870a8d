"""What each output means: the words behind docs/interfaces.md."""

from __future__ import annotations

OUTPUTS: dict[str, str] = {
    "text_output": "the text, or what is new of it, an element for each beam; in llmapi always the whole text so far",
    "output_ids": "token ids: prompt and answer, or what is new; a row for each beam, the shorter ones padded",
    "sequence_length": "ids in this response, of each beam",
    "sequence_index": "which of several answers; in tensorrt_llm only where several were asked for",
    "batch_index": "which prompt of the batch; only where there are several",
    "finish_reason": "of each beam, else one: eos, stop, length, cancelled, timeout; empty while it runs. vllm_model "
    "and llmapi say stop for eos, and vllm_model None while it runs",
    "stop_reason": "stop string if one ended the text, else empty",
    "num_input_tokens": "tokens of the prompt",
    "num_output_tokens": "new tokens in this response, of all beams together",
    "cum_log_probs": "log-probability of the answer so far, of each beam; beams' are of the logits after penalties, "
    "biases and what is forbidden",
    "output_log_probs": "of each new token, a row for each beam",
    "log_prob_ids": "the new tokens that `output_log_probs` is of",
    "top_log_prob_ids": "the likeliest tokens at the place of each new one",
    "top_log_probs": "their log-probabilities",
    "context_logits": "of each position of the prompt",
    "generation_logits": "of each new token",
    "cumulative_logprob": "log-probability of the answer so far",
    "logprobs": "JSON: for each new token an object of token id -> logprob, rank, decoded_token",
    "kv_cache_reused_blocks": "blocks of the prompt found in the prefix cache",
    "kv_cache_reused_block": "blocks of the prompt found in the prefix cache",
    "kv_cache_alloc_new_blocks": "blocks allocated anew",
    "kv_cache_alloc_total_blocks": "blocks held in all",
    "arrival_time_ns": "when the request arrived at the engine",
    "first_scheduled_time_ns": "when it first had a place in a step",
    "first_token_time_ns": "when its first token was there",
    "last_token_time_ns": "when its last token was there",
    "text_ids": "for the detokenizer: ids of text_span",
    "text_span": "for the detokenizer: bytes to show of what text_ids stand for, first and last of each row",
    "engine_key": "the engine's own key of the request, by which stop ends it",
    "error": "message and code of a failure, in place of an error response, to who sent announce",
}
