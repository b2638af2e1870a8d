"""Settings: what the operator decides; one frozen object, read once from the command line and the environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KEY_VARIABLE = "GATEWAY_API_KEY"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """url: host:port of the server's gRPC service. model_name: "" = the name of the tokenizer's directory.

    tokenizer_dir: None = where the server's preprocessing has it. max_body_bytes: of a request. max_requests: under way
    at a time. request_seconds: from a request to the end of its answer. default_max_tokens: of a chat answer that names
    no limit, if the model has room for as many. api_key: "" asks for none.
    """

    url: str = "127.0.0.1:8001"
    model_name: str = ""
    tokenizer_dir: Path | None = None
    max_body_bytes: int = 4 << 20
    max_requests: int = 256
    request_seconds: float = 600.0
    default_max_tokens: int = 1024
    api_key: str = ""
