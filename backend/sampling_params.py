"""SamplingParams: how a request wants its tokens drawn and ended, and the limits that keep that sane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from backend.beam_params import BeamParams
from backend.errors import InvalidRequest
from backend.guide import Guide
from backend.logit_bias import NO_BIAS, LogitBias
from backend.ranges import within

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing float32 logits by less overflows."""

MAX_TEMPERATURE = 1e4
MAX_REPETITION_PENALTY = 1e4
MAX_ADDED_PENALTY = 100.0
MAX_BIAS = 1e30
MAX_STOP_IDS = 256
MAX_WORDS = 512
MAX_WORD_IDS = 64
MAX_TOP_LOG_PROBS = 20
MAX_LOGITS_BYTES = 32 << 20
"""Generation logits of one request, and context logits."""

Words = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How to draw and when to end.

    temperature: 0 (or below 1e-5) is greedy. top_k: 0 = whole vocabulary. top_p: 1 = all. min_p: 0 = all, else tokens
    less likely than min_p times the likeliest are cut. Filters apply in this order: temperature, top_k, top_p, min_p.
    seed: 64 bits; the draw at a position depends on (seed, position, logits) only.
    end_ids: end of sequence, reason ``eos``. stop_ids: the request's own stop tokens, reason ``stop``.
    stop_sequences: token sequences that end the output once it holds one of them, reason ``stop``.

    Before temperature and filters the logits are changed in this order, greedy or not:

    repetition_penalty: divides positive logits of tokens of prompt and output, multiplies negative ones; 1 = none.
    frequency_penalty, presence_penalty: subtracted for each occurrence in the output, and once if there is any.
    logit_bias: added to the logits of its tokens.
    bad_words: token sequences that never occur: the last token of one is forbidden where the tokens before, prompt
    included, end in its beginning.
    guide: what the output conforms to: other tokens are forbidden, end_ids where it may not end. When it is complete
    and no end may be drawn, as there is none or min_tokens forbids it, the output ends with reason ``stop``.
    min_tokens: neither end_ids nor stop_ids are drawn, and no stop sequence ends the output, before so many tokens.

    log_probs: each token comes with its log-probability, see ``TokenDetail``; top_log_probs: and with those of so many
    of the likeliest. generation_logits: and with the raw logits. context_logits: and each prompt position with its own.

    beams: a search in place of a draw: temperature, filters and seed have no effect, and tokens come with candidates,
    of the logits after all the changes above, in place of the details.
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    end_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    stop_sequences: Words = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: LogitBias = NO_BIAS
    bad_words: Words = ()
    min_tokens: int = 0
    guide: Guide | None = None
    log_probs: bool = False
    top_log_probs: int = 0
    generation_logits: bool = False
    context_logits: bool = False
    beams: BeamParams | None = None
    processed: bool = field(init=False, repr=False, compare=False)
    """Whether logits are changed before the draw."""
    detailed: bool = field(init=False, repr=False, compare=False)
    """Whether tokens come with a ``TokenDetail``."""
    reads_tokens: bool = field(init=False, repr=False, compare=False)
    """Whether the tokens so far change the logits: by penalties, a guide, or the beginning of a bad word."""
    special: bool = field(init=False, repr=False, compare=False)
    """Whether processed or detailed; the many requests that want neither are told by this one look."""

    def __post_init__(self) -> None:
        processed = self.penalised or bool(
            self.logit_bias or self.bad_words or self.min_tokens or self.guide is not None
        )
        detailed = self.log_probs or self.top_log_probs > 0 or self.generation_logits or self.beams is not None
        reads_tokens = self.penalised or self.guide is not None or any(len(word) > 1 for word in self.bad_words)
        object.__setattr__(self, "processed", processed)
        object.__setattr__(self, "reads_tokens", reads_tokens)
        object.__setattr__(self, "detailed", detailed)
        object.__setattr__(self, "special", processed or detailed)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, without a draw."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @property
    def penalised(self) -> bool:
        """Whether any of the three penalties is on."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def ending_ids(self) -> frozenset[int]:
        """Tokens that end the output by themselves; not drawn before ``min_tokens``."""
        single = {words[0] for words in self.stop_sequences if len(words) == 1}
        return self.end_ids | self.stop_ids | single

    @property
    def num_top(self) -> int:
        """How many of the likeliest tokens come with each one."""
        return self.beams.num_candidates(len(self.ending_ids)) if self.beams is not None else self.top_log_probs

    def stops(self, tokens: Sequence[int], num_output: int) -> bool:
        """Whether an output ends in a stop token or in a whole stop sequence, beyond its least length.

        tokens: which end in so many output tokens.
        """
        if num_output <= self.min_tokens:
            return False
        if tokens[-1] in self.stop_ids:
            return True
        return any(len(words) <= num_output and tuple(tokens[-len(words) :]) == words for words in self.stop_sequences)

    def validate(self, vocab_size: int) -> None:
        """Raise InvalidRequest, naming field, value and limit, for whatever is out of range (NaN included)."""
        within("max_tokens", self.max_tokens, 1, 1 << 31)
        within("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        within("top_k", self.top_k, 0, 1 << 31)
        within("top_p", self.top_p, 0.0, 1.0, low_allowed=False)
        within("min_p", self.min_p, 0.0, 1.0)
        within("seed", self.seed, 0, (1 << 64) - 1)
        within("repetition_penalty", self.repetition_penalty, 1 / MAX_REPETITION_PENALTY, MAX_REPETITION_PENALTY)
        within("presence_penalty", self.presence_penalty, -MAX_ADDED_PENALTY, MAX_ADDED_PENALTY)
        within("frequency_penalty", self.frequency_penalty, -MAX_ADDED_PENALTY, MAX_ADDED_PENALTY)
        _ids("end_id", self.end_ids, vocab_size)
        _ids("stop_token_ids", self.stop_ids, vocab_size)
        _words("stop_words_list", self.stop_sequences, vocab_size)
        _words("bad_words_list", self.bad_words, vocab_size)
        _bias(self.logit_bias, vocab_size)
        self._validate_lengths(vocab_size)
        if self.beams is not None:
            self.beams.validate(len(self.ending_ids), vocab_size)

    def validate_together(self, num_sequences: int, vocab_size: int) -> None:
        """Raise InvalidRequest if so many sequences of one request would bring more than one may hold."""
        size = 4 * num_sequences * self.max_tokens * vocab_size
        if self.generation_logits and size > MAX_LOGITS_BYTES:
            raise InvalidRequest(
                "return_generation_logits",
                f"{num_sequences} sequences of {self.max_tokens} tokens (max_tokens) by {vocab_size} logits are {size} "
                f"bytes, at most {MAX_LOGITS_BYTES} are allowed",
            )

    def validate_prompt(self, num_prompt: int, vocab_size: int) -> None:
        """Raise InvalidRequest if a prompt of so many tokens would bring more logits than one request may hold."""
        size = 4 * num_prompt * vocab_size
        if self.context_logits and size > MAX_LOGITS_BYTES:
            raise InvalidRequest(
                "return_context_logits",
                f"{num_prompt} tokens of the prompt by {vocab_size} logits are {size} bytes, at most "
                f"{MAX_LOGITS_BYTES} are allowed",
            )

    def _validate_lengths(self, vocab_size: int) -> None:
        within("num_log_probs", self.top_log_probs, 0, min(MAX_TOP_LOG_PROBS, vocab_size))
        within("min_tokens", self.min_tokens, 0, 1 << 31)
        if self.min_tokens > self.max_tokens:
            raise InvalidRequest("min_tokens", f"{self.min_tokens} exceeds max_tokens, {self.max_tokens}")


def _ids(name: str, ids: Iterable[int], vocab_size: int, most: int = MAX_STOP_IDS) -> None:
    count = 0
    for token in ids:
        within(name, token, 0, vocab_size - 1)
        count += 1
    if count > most:
        raise InvalidRequest(name, f"{count} ids, at most {most} are allowed")


def _words(name: str, words: Words, vocab_size: int) -> None:
    if len(words) > MAX_WORDS:
        raise InvalidRequest(name, f"{len(words)} words, at most {MAX_WORDS} are allowed")
    for word in words:
        if not word:
            raise InvalidRequest(name, "a word of 0 ids, at least 1 is needed")
        _ids(name, word, vocab_size, MAX_WORD_IDS)


def _bias(bias: LogitBias, vocab_size: int) -> None:
    """May be a whole vocabulary: looked at entry by entry only when something is wrong."""
    low, high = bias.extremes()
    if low[0] >= 0 and high[0] < vocab_size and low[1] >= -MAX_BIAS and high[1] <= MAX_BIAS:
        return
    for token, weight in bias:
        within("logit_bias_ids", token, 0, vocab_size - 1)
        within("logit_bias_weights", weight, -MAX_BIAS, MAX_BIAS)
