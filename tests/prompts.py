"""Varied prompts for comparing texts: languages, scripts, code, emoji, odd spacing, from 1 to 1,500 tokens."""

_WORDS = (
    "river stone quiet harbour engine copper morning ladder winter signal garden mirror cloud paper silver bridge "
    "window basket thunder market candle forest needle valley lantern meadow anchor pepper saddle orchard"
).split()


def filler(words: int, stride: int = 7) -> str:
    """A text of so many words without a short period, so that positions matter."""
    return " ".join(_WORDS[(n * stride + n * n // 5) % len(_WORDS)] for n in range(words))


VARIED = [
    "A",
    "Hello",
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "List the first ten prime numbers:\n1. 2\n2. 3\n3. 5\n",
    "def fibonacci(n):\n    ",
    "#include <stdio.h>\n\nint main(void) {\n\tprintf(",
    "SELECT name, count(*) FROM users WHERE",
    '{"name": "Ada", "born": 1815, "fields": [',
    "<html>\n  <body>\n    <h1>Welcome</h1>\n",
    "La capitale de l'Italie est Rome, et celle de l'Espagne est",
    "Der schnelle braune Fuchs springt über den",
    "Москва является столицей",
    "東京は日本の首都です。大阪は",
    "भारत की राजधानी",
    "العاصمة المصرية هي",
    "한국의 수도는",
    "Emoji story: 🐱🚀🌙✨ The cat 🐱 flew to the",
    "Family 👩‍👩‍👧‍👦 and flags 🇫🇷🇯🇵 with tones 👍🏽:",
    "Two  spaces,\ttabs,\n\n\nnewlines and trailing spaces   ",
    "12345678901234567890 + 98765432109876543210 =",
    "Summarize the following words: " + filler(120),
    "Continue this list of words: " + filler(500, 11),
    "Read carefully. " + filler(1020, 13) + "\nQuestion: which word came first? Answer:",
]

FOR_GEMMA = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Москва является столицей",
    "東京は日本の首都です。大阪は",
    "Emoji story: 🐱🚀🌙✨ The cat 🐱 flew to the",
    "Two  spaces,\ttabs,\n\n\nnewlines and   ",
    "Continue this list of words: " + filler(600, 11),
    "Read carefully. " + filler(900, 13) + "\nQuestion: which word came first? Answer:",
]
