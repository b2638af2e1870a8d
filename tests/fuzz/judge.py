"""What is wrong with an outcome: an end that did not come, or an error that is not one clear line."""

from __future__ import annotations

import re

from tests.fuzz.cases import Case
from tests.fuzz.sending import Outcome

LONGEST_ERROR = 1000
REASONS = {"", "None", "stop", "eos", "length", "cancelled", "timeout", "error"}
"""None is how vLLM's backend writes that it goes on."""
TELLS = {
    "a stack": re.compile(r"Traceback|File \"|\bline \d+, in\b"),
    "a path": re.compile(r"(?<![\w.:/#~])/(?:[\w.+-]+/)+[\w.+-]+|\.(?:py|so|cc|rs|pbtxt)\b"),
    "an address": re.compile(r"\b0x[0-9a-fA-F]{6,}"),
    "a memory key": re.compile(r"\bshm\b|shared memory|memory key|triton_python_backend_shm"),
    "a Python name": re.compile(
        r"<class |\bobject at 0x|\b\w*[a-z]\w*(?:Error|Exception|Warning)\b|\bNoneType\b|\bnumpy\b|\bdtype\b|\bself\."
    ),
    "no reason": re.compile(r"could not be taken in|request to the engine failed|could not be compiled"),
}
"""What an error must not hold -> how it shows. The last are this project's words for what it did not expect."""


def problems_of_error(message: object) -> list[str]:
    """What is wrong with the text of one error."""
    if not isinstance(message, str):
        return [f"an error that is no text: {message!r}"]
    found = [f"an error with {what}: {message[:300]!r}" for what, tell in TELLS.items() if tell.search(message)]
    if not message.strip():
        found.append("an error without words")
    if len(message.splitlines()) > 1 or not message.replace("\t", " ").isprintable():
        found.append(f"an error of several lines, or with what cannot be shown: {message[:300]!r}")
    if len(message) > LONGEST_ERROR:
        found.append(f"an error of {len(message)} characters: {message[:100]!r}")
    return found


def problems_of(case: Case, outcome: Outcome) -> list[str]:
    """What is wrong with the outcome of a case."""
    if outcome.late:
        return ["no end within the bound"]
    found = [problem for error in outcome.errors for problem in problems_of_error(_without_id(error, case))]
    if outcome.broken:
        found.append(outcome.broken)
    if len(outcome.errors) > 1 and case.model != "tensorrt_llm":  # there each row has its own
        found.append(f"{len(outcome.errors)} errors")
    found += [f"finish_reason {reason!r}" for reason in outcome.reasons if reason not in REASONS]
    for text in outcome.texts:
        try:
            text.decode()
        except UnicodeDecodeError:
            found.append(f"text that is no UTF-8: {text[:80]!r}")
    if outcome.left:
        return found
    if case.door == "grpc" and (outcome.finals > 1 or not (outcome.finals or outcome.errors)):
        found.append(f"{outcome.finals} final markers")
    if outcome.after_final:
        found.append(f"{outcome.after_final} responses after the final one")
    return found


def _without_id(error: str, case: Case) -> str:
    """The error without the request's own id, which Triton Server puts before it as it came."""
    return error.removeprefix(f"[request id: {case.request_id}] ") if isinstance(error, str) else error
