"""Texts that tokenizers stumble over."""

import random
from pathlib import Path

HARD = [
    "",
    "Hello world",
    " leading space",
    "  two,   three    four",
    " " * 40 + "x",
    "a\n\n\n\nb\r\n\r\n \n \t \t\t\tx",
    "日本語のテキスト、你好世界 한국어",
    "Привет, мир! Как дела?",
    "👩‍👩‍👧‍👦🏳️‍🌈 😀😀 👍🏽",
    "<table><tr><td>1</td></tr></table> <strong>b</strong>",
    "12345 3.14159 1,000,000 ½ ²",
    "a" * 25 + "anananana" + "=" * 30 + "-" * 17,
    "\x00\x01\x7f\u0080\uffff\u00a0\u200b",
    "हिन्दी ไทย العربية עברית",
    "don't I'LL we've 'tis",
    "def f(x):\n    return {'a': x ** 2}  # done\n\n\nclass A:\n\tpass\n",
    "naïve café e\u0301",
]
RANGES = [(1, 0x250), (0x400, 0x500), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF), (0x10000, 0x10FFFF)]
BITS = [*" abenth10=-_éж你😀\u200d\t\n()\"'.,", "  ", "the", "ing", "<b>", "</b>"]


def texts(count=300, seed=0):
    """The hard ones, `count` random strings of awkward bits, as many of random characters, and slices of code."""
    rng = random.Random(seed)
    bits = ["".join(rng.choices(BITS, k=rng.randint(1, 60))) for _ in range(count)]
    wild = ["".join(chr(rng.randrange(*rng.choice(RANGES))) for _ in range(rng.randint(1, 40))) for _ in range(count)]
    return HARD + bits + wild + _slices(rng, count)


def _slices(rng, count):
    source = Path(random.__file__).read_text()
    starts = [rng.randrange(len(source)) for _ in range(count)]
    return [source[at : at + rng.randint(5, 400)] for at in starts]
