"""The vocabulary that a GGUF file carries, in one typed piece."""

from dataclasses import dataclass
from enum import IntEnum

from backend.checkpoint.errors import CheckpointError
from backend.checkpoint.gguf_file import GgufFile

# Where a file says nothing about BOS, llama.cpp adds one for these (Llama 3 writes no flag).
BOS_UNLESS_TOLD = {("llama", "default"), ("gpt2", "llama-bpe")}


class Kind(IntEnum):
    """`tokenizer.ggml.token_type`: sentencepiece's piece types."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens by id with their kinds and scores (`scores` and `merges` are empty where the file has none)."""

    model: str
    pre: str
    tokens: list[str]
    kinds: list[int]
    scores: list[float]
    merges: list[str]
    special_ids: dict[str, int]
    """bos, eos, unk, pad: those that the file names."""
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    chat_template: str | None

    def of_kind(self, *kinds: Kind) -> list[str]:
        """The tokens of these kinds, in the order of their ids."""
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in kinds]

    def special(self, name: str) -> str | None:
        """The text of the token bos, eos, unk or pad; None where the file names none."""
        return self.tokens[self.special_ids[name]] if name in self.special_ids else None


def read_vocabulary(gguf: GgufFile) -> Vocabulary:
    """The file's vocabulary. Raises CheckpointError where it has none, or lists of unequal length."""
    meta = {key.removeprefix("tokenizer.ggml."): value for key, value in gguf.meta.items()}
    if not meta.get("tokens") or "model" not in meta:
        raise CheckpointError(f"{gguf.path} carries no tokenizer")
    tokens = meta["tokens"]
    kinds, scores = meta.get("token_type") or [Kind.NORMAL] * len(tokens), meta.get("scores", [])
    if len(kinds) != len(tokens) or len(scores) not in (0, len(tokens)):
        raise CheckpointError(f"{gguf.path}: tokens, token types and scores differ in number")
    model, pre = meta["model"], meta.get("pre", "default")
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        kinds=kinds,
        scores=scores,
        merges=meta.get("merges", []),
        special_ids={ours: meta[f"{key}_token_id"] for ours, key in names.items() if f"{key}_token_id" in meta},
        add_bos=meta.get("add_bos_token", (model, pre) in BOS_UNLESS_TOLD),
        add_eos=meta.get("add_eos_token", False),
        add_space_prefix=meta.get("add_space_prefix", model == "llama"),
        chat_template=gguf.meta.get("tokenizer.chat_template"),
    )
