"""Byte-level BPE tokenizers (`tokenizer.ggml.model` = gpt2): one entry for each kind of pre-tokenization.

The kinds and their patterns are those of the models' own tokenizer.json files. A kind that is not listed is refused:
another split gives other ids, and a model fed with them answers worse without any error.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from backend.checkpoint.errors import UnsupportedModel
from backend.checkpoint.vocabulary import Kind, Vocabulary

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1,3}}|{REST}"
QWEN2 = rf"{CONTRACTIONS}|{WORD}|\p{{N}}|{REST}"


def _byte_level(use_regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, _byte_level(use_regex=False)])


def _digits_apart() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level(use_regex=True)])


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How text is cut before the merges apply."""

    pre_tokenizer: Callable[[], pre_tokenizers.PreTokenizer]
    nfc: bool = False
    ignore_merges: bool = False
    """A piece that is a token as a whole becomes that token, whatever the merges say (Llama 3)."""


GPT2 = Shape(pre_tokenizer=lambda: _byte_level(use_regex=True))
SHAPES = {
    "default": GPT2,
    "gpt-2": GPT2,
    "smollm": Shape(pre_tokenizer=_digits_apart),
    "llama-bpe": Shape(pre_tokenizer=lambda: _split_by(LLAMA3), ignore_merges=True),
    "qwen2": Shape(pre_tokenizer=lambda: _split_by(QWEN2), nfc=True),
}


def shape_of(vocabulary: Vocabulary) -> Shape:
    """How this vocabulary's text is cut. Raises UnsupportedModel for an unknown kind of pre-tokenization."""
    if vocabulary.pre not in SHAPES:
        known = ", ".join(sorted(SHAPES))
        raise UnsupportedModel(f"pre-tokenizer {vocabulary.pre!r} is not supported (supported: {known})")
    return SHAPES[vocabulary.pre]


def build_byte_level(vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer without its post-processor. Raises UnsupportedModel as `shape_of` does."""
    shape = shape_of(vocabulary)
    tokenizer = Tokenizer(_bpe(vocabulary, shape))
    if shape.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = shape.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    for kind in (Kind.CONTROL, Kind.USER_DEFINED):
        tokenizer.add_tokens([_never_cut(token, kind) for token in vocabulary.of_kind(kind)])
    return tokenizer


def _never_cut(token: str, kind: Kind) -> AddedToken:
    return AddedToken(token, special=kind == Kind.CONTROL, normalized=False)


def _bpe(vocabulary: Vocabulary, shape: Shape) -> models.BPE:
    # Unused tokens only pad the vocabulary to the size of the embedding; the original tokenizers do not have them.
    kinds = zip(vocabulary.tokens, vocabulary.kinds, strict=True)
    ids = {token: i for i, (token, kind) in enumerate(kinds) if kind != Kind.UNUSED}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in vocabulary.merges)]
    return models.BPE(vocab=ids, merges=pairs, ignore_merges=shape.ignore_merges)
