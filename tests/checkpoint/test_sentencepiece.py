"""Sentencepiece itself is the oracle: same ids and same text, on a trained model and on Gemma's real vocabulary."""

import io
from functools import cache

import pytest
import sentencepiece
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.utils import sentencepiece_model_pb2_new as proto

from backend.checkpoint.gguf_file import GgufFile
from backend.checkpoint.gguf_tokenizer import build_tokenizer
from backend.checkpoint.sentencepiece_bpe import pieces
from backend.checkpoint.vocabulary import Kind, Vocabulary, read_vocabulary
from tests.checkpoint.texts import texts


def processor(vocabulary, prefix=False):
    """A sentencepiece model with this vocabulary's pieces, scores and kinds."""
    model = proto.ModelProto()
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    for name in ("unk", "bos", "eos"):
        setattr(model.trainer_spec, f"{name}_id", vocabulary.special_ids[name])
        setattr(model.trainer_spec, f"{name}_piece", vocabulary.special(name))
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = prefix
    model.normalizer_spec.remove_extra_whitespaces = False
    for piece, kind, score in zip(pieces(vocabulary), vocabulary.kinds, vocabulary.scores, strict=True):
        kind = Kind.UNKNOWN if piece == vocabulary.special("unk") else kind
        model.pieces.add(piece=piece, score=score, type=kind)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


@cache
def trained(prefix, user_defined=()):
    """A sentencepiece BPE model trained here, and its pieces as a GGUF file lists them."""
    out = io.BytesIO()
    lines = [line for text in texts(count=150, seed=5) for line in text.splitlines()]
    corpus = [line for line in lines if line.strip() and "\0" not in line and max(line) < "\u0500"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=out,
        vocab_size=900,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=0.99,
        normalization_rule_name="identity",
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=False,
        user_defined_symbols=list(user_defined),
        minloglevel=2,
        num_threads=1,
    )
    spm = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    model = proto.ModelProto.FromString(out.getvalue())
    spelled = [p.piece.replace("▁", " ") if p.type == Kind.USER_DEFINED else p.piece for p in model.pieces]
    vocabulary = Vocabulary(
        model="llama",
        pre="default",
        tokens=spelled,
        kinds=[p.type for p in model.pieces],
        scores=[p.score for p in model.pieces],
        merges=[],
        special_ids={"unk": 0, "bos": 1, "eos": 2},
        add_bos=True,
        add_eos=False,
        add_space_prefix=prefix,
        chat_template=None,
    )
    return spm, build_tokenizer(vocabulary)


def assert_alike(spm, tokenizer, some):
    for text in some:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == spm.encode(text), repr(text)
        assert tokenizer.decode(ids) == spm.decode(ids), repr(text)


@pytest.mark.parametrize("prefix", [True, False])
def test_a_trained_model_gives_sentencepieces_ids(prefix):
    spm, tokenizer = trained(prefix)
    assert_alike(spm, tokenizer, texts(seed=1))


def test_user_defined_pieces_are_neither_cut_nor_joined():
    spm, tokenizer = trained(False, ("\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "<b>", "</b>", "\t\t"))
    assert_alike(spm, tokenizer, texts(seed=2))


def test_bos_comes_first_where_the_file_asks_for_it():
    _, tokenizer = trained(True)
    assert tokenizer.encode("a").ids[0] == 1
    assert tokenizer.encode("<s>a").ids[:2] == [1, 1]


def test_gemma3_gives_sentencepieces_ids(gemma3_gguf, gemma3_dir):
    spm = processor(read_vocabulary(GgufFile(gemma3_gguf)))
    assert_alike(spm, Tokenizer.from_file(str(gemma3_dir / "tokenizer.json")), texts(count=1000, seed=3))


def test_gemma3_loads_alike_in_transformers_with_bos(gemma3_dir):
    loaded = AutoTokenizer.from_pretrained(gemma3_dir)
    plain = Tokenizer.from_file(str(gemma3_dir / "tokenizer.json"))
    for text in texts(count=50):
        ids = loaded(text)["input_ids"]
        assert ids == plain.encode(text).ids
        assert ids[0] == loaded.bos_token_id == 2
    assert loaded("<start_of_turn>user\nHi<end_of_turn>\n", add_special_tokens=False)["input_ids"][::4] == [105, 106]
