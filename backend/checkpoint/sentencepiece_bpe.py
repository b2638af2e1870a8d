"""Sentencepiece BPE tokenizers (`tokenizer.ggml.model` = llama): merges recovered from the scores of the pieces.

Sentencepiece joins, at each step, the two neighbours whose join is the piece with the best score, leftmost first.
Tokenizers' BPE ranks pairs instead; ranking every pair by the score of its join gives the same order but for one case:
two different pairs that give the same piece are equals for sentencepiece and ranked here.
"""

from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from backend.checkpoint.errors import CheckpointError
from backend.checkpoint.vocabulary import Kind, Vocabulary

SPACE = "\u2581"


def build_sentencepiece(vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer without its post-processor. Raises CheckpointError where the file has no scores."""
    if not vocabulary.scores:
        raise CheckpointError("a sentencepiece vocabulary needs scores, and the file has none")
    tokenizer = Tokenizer(_bpe(vocabulary))
    prefix = vocabulary.add_space_prefix
    escape = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), escape]) if prefix else escape
    tokenizer.decoder = _decoder(prefix)
    control = [AddedToken(token, special=True, normalized=False) for token in vocabulary.of_kind(Kind.CONTROL)]
    tokenizer.add_tokens(control)
    tokenizer.add_tokens(_user_defined(vocabulary))
    return tokenizer


def pieces(vocabulary: Vocabulary) -> list[str]:
    """The pieces as sentencepiece itself spells them: llama.cpp writes user-defined spaces as plain spaces."""
    pairs = zip(vocabulary.tokens, vocabulary.kinds, strict=True)
    return [token.replace(" ", SPACE) if kind == Kind.USER_DEFINED else token for token, kind in pairs]


def _user_defined(vocabulary: Vocabulary) -> list[AddedToken]:
    """User-defined pieces are never cut nor joined.

    Sentencepiece looks for them in the normalized text. With a space prefix that is not to be had here, since a
    normalized added token would get the prefix too; there they are looked for in the plain text, as llama.cpp does.
    """
    prefix = vocabulary.add_space_prefix
    tokens = [token if prefix else token.replace(" ", SPACE) for token in vocabulary.of_kind(Kind.USER_DEFINED)]
    return [AddedToken(token, special=False, normalized=not prefix) for token in tokens]


def _bpe(vocabulary: Vocabulary) -> models.BPE:
    spelled = vocabulary.tokens if vocabulary.add_space_prefix else pieces(vocabulary)
    ids = {token: i for i, token in enumerate(spelled)}
    if len(ids) != len(spelled):
        raise CheckpointError("the vocabulary holds the same piece twice")
    has_bytes = Kind.BYTE in vocabulary.kinds
    unknown = vocabulary.special("unk")
    merges = ranked_merges(vocabulary)
    return models.BPE(vocab=ids, merges=merges, byte_fallback=has_bytes, fuse_unk=True, unk_token=unknown)


def ranked_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """All ways to make a normal piece out of two, best score first; among equals the longer left part first."""
    entries = zip(vocabulary.tokens, vocabulary.kinds, vocabulary.scores, strict=True)
    normal = {token: score for token, kind, score in entries if kind == Kind.NORMAL}
    best_first = sorted(normal, key=lambda token: -normal[token])
    return [pair for token in best_first for pair in _cuts(token, normal)]


def _cuts(token: str, normal: dict[str, float]) -> Iterator[tuple[str, str]]:
    for at in range(len(token) - 1, 0, -1):
        if token[:at] in normal and token[at:] in normal:
            yield token[:at], token[at:]


def _decoder(prefix: bool) -> Any:
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
