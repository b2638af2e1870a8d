"""Byte-level tokenizers: the public structure of each kind, built independently, and facts known by hand."""

import json
from itertools import pairwise

import pytest
import regex
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from backend.checkpoint.byte_level import SHAPES
from tests.checkpoint.gguf_samples import _byte_letters
from tests.checkpoint.texts import texts

LETTERS = _byte_letters()
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def smollm(text):
    """Digits stand alone; what lies between them is cut as GPT-2 does."""
    for part in regex.findall(r"\p{N}|[^\p{N}]+", text):
        yield from regex.findall(GPT2, part)


CUTS = {
    "gpt-2": lambda text: regex.findall(GPT2, text),
    "default": lambda text: regex.findall(GPT2, text),
    "smollm": smollm,
    "llama-bpe": lambda text: regex.findall(LLAMA3, text),
    "qwen2": lambda text: regex.findall(LLAMA3.replace("{1,3}", ""), text),
}


def spelled(piece):
    return "".join(LETTERS[byte] for byte in piece.encode())


def known_characters(text):
    """Without characters that are younger than the Unicode tables of one of the two regex engines."""
    return regex.sub(r"[^\u0000-\u052f\u2000-\u30ff\u4e00-\u9fff\U0001f300-\U0001f5ff]", "", text)


@pytest.mark.parametrize("pre", sorted(SHAPES))
def test_text_is_cut_as_the_original_tokenizer_cuts_it(pre):
    cut = SHAPES[pre].pre_tokenizer()
    for text in map(known_characters, texts(count=300, seed=4)):
        ours = [piece for piece, _ in cut.pre_tokenize_str(text)]
        assert ours == [spelled(piece) for piece in CUTS[pre](text)], repr(text)


def merged(piece, ranks, ids):
    """BPE by the book: join the best-ranked pair, leftmost first, until none is left; drop what is no token."""
    parts = [LETTERS[byte] for byte in piece.encode()]
    while len(parts) > 1:
        rank, at = min((ranks.get(pair, len(ranks)), i) for i, pair in enumerate(pairwise(parts)))
        if rank == len(ranks):
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [ids[part] for part in parts if part in ids]


def test_smollm2_gives_the_ids_of_a_plain_bpe(smollm2_dir):
    model = json.loads((smollm2_dir / "tokenizer.json").read_text())["model"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    for text in map(known_characters, texts(count=100, seed=6)):
        want = [i for piece in smollm(text) for i in merged(piece, ranks, model["vocab"])]
        assert tokenizer.encode(text).ids == want, repr(text)


def missing_bytes(vocabulary):
    """SmolLM2's vocabulary has no token for 21 bytes (rare control characters and such); its tokenizer drops them."""
    missing = {byte for byte in range(256) if LETTERS[byte] not in vocabulary}
    assert len(missing) == 21
    return missing


def without(missing, text):
    return bytes(byte for byte in text.encode() if byte not in missing).decode(errors="replace")


def test_smollm2_in_transformers_round_trips_any_text_without_bos(smollm2_dir):
    loaded = AutoTokenizer.from_pretrained(smollm2_dir)
    plain = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    assert len(loaded) == 49152
    missing = missing_bytes(loaded.get_vocab())
    for text in texts(count=100):
        ids = loaded(text)["input_ids"]
        assert ids == plain.encode(text).ids
        assert loaded.decode(ids) == without(missing, text), repr(text)


def test_smollm2_facts_known_by_hand(smollm2_dir):
    loaded = AutoTokenizer.from_pretrained(smollm2_dir)
    assert loaded("<|endoftext|><|im_start|><|im_end|>")["input_ids"] == [0, 1, 2]
    assert loaded.tokenize("12345 don't") == ["1", "2", "3", "4", "5", "Ġdon", "'t"]
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (1, 2, 2)
    chat = [{"role": "user", "content": "Hi"}]
    text = loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert loaded(text)["input_ids"][-8:] == [198, 26843, 2, 198, 1, 520, 9531, 198]
