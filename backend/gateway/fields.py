"""What a request may say: OpenAI's fields as far as they are served, and those of other servers that are.

Types are checked here; what a number may be is the server's business, whose words a client gets with the field's name.
A field that is null is a field that is not there. A field that is not listed here is refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

INT32 = (1 << 31) - 1
INT64 = 1 << 63

IGNORED: dict[str, str] = {
    "metadata": "OpenAI's bookkeeping",
    "store": "OpenAI's bookkeeping; nothing is stored here",
    "service_tier": "there is one tier; see `priority`",
    "safety_identifier": "OpenAI's bookkeeping",
    "prompt_cache_key": "a hint; prefixes are found by themselves",
    "prompt_cache_retention": "a hint",
    "prediction": "a hint",
}
"""Fields that clients send by habit and that change no answer: accepted, without an effect."""

REFUSED: dict[str, str] = {
    "suffix": "text after the completion is not supported",
    "functions": "is not supported, `tools` is",
    "function_call": "is not supported, `tools` is",
    "audio": "only text is supported",
    "web_search_options": "is not supported",
    "reasoning_effort": "is not supported",
    "verbosity": "is not supported",
}
"""Fields of OpenAI's that would change the answer and are not served: refused with these words."""

Int = Annotated[int, Field(ge=0, le=INT32)]
Count = Annotated[int, Field(ge=1, le=INT32)]
Signed = Annotated[int, Field(ge=-INT32, le=INT32)]


class _Part(BaseModel):
    """Null is absent, nothing unknown, no NaN, and a string is no number."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, value: Any) -> Any:
        return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


class TextPart(_Part):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(_Part):
    """One message; the parts of its content are joined by line ends."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(min_length=1)] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    refusal: Any = None
    annotations: Any = None


class StreamOptions(_Part):
    """Options of a stream."""

    include_usage: bool = False
    include_obfuscation: bool = False


class JsonSchema(_Part):
    """A schema that the answer must follow."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(_Part):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class CommonFields(_Part):
    """What both kinds of requests may say."""

    model: str = Field(description="the served model's name, as `/v1/models` lists it")
    stream: bool = Field(False, description="server-sent events, each with new text only, ended by `[DONE]`")
    stream_options: StreamOptions | None = Field(
        None, description="`include_usage`: one more event with the token counts; only with `stream`"
    )
    n: Int = Field(1, description="so many answers, each choice with its `index`; the prompt is computed once")
    stop: str | list[str] | None = Field(
        None, description="a string or a list; the text ends before the first of them. Up to 32, of up to 1024 bytes"
    )
    temperature: float = Field(1.0, description="0 takes the likeliest token")
    top_p: Annotated[float, Field(gt=0.0)] | None = Field(None, description="(0, 1]")
    top_k: Int | None = Field(None, description="0: all tokens")
    min_p: float | None = Field(None, description="[0, 1]; tokens less likely than this times the likeliest are cut")
    seed: Annotated[int, Field(ge=-INT64, lt=2 * INT64)] | None = Field(
        None, description="64 bits, counted modulo 2^64; same seed, same text. Without one every answer differs"
    )
    presence_penalty: float | None = Field(None, description="taken off the logit of a token that was generated")
    frequency_penalty: float | None = Field(None, description="the same, for each time")
    repetition_penalty: float | None = Field(None, description="divides the logits of tokens seen; 1: none")
    logit_bias: dict[str, float] | None = Field(None, description="token id -> added to its logit")
    min_tokens: Int | None = Field(None, description="no end before so many tokens")
    ignore_eos: bool | None = Field(None, description="no end at the model's end-of-sequence token")
    priority: Signed | None = Field(
        None, description="1 (most urgent) to 3; 0 or absent is the default, 2. Also the header `x-priority`"
    )
    user: str | None = Field(
        None, description="whose fair share is used, up to 256 bytes; the header `x-tenant` goes before it"
    )
    cache_salt: str | None = Field(
        None, description="prefixes are shared only among requests of one salt; up to 256 bytes"
    )
    response_format: ResponseFormat | None = Field(
        None, description="`json_object`, `json_schema`: the answer keeps to it, where the server has guided decoding"
    )

    @model_validator(mode="before")
    @classmethod
    def _set_aside(cls, value: Any) -> Any:
        return {k: v for k, v in value.items() if k not in IGNORED} if isinstance(value, dict) else value


class ChatRequest(CommonFields):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, description="rendered by the model's own chat template")
    max_completion_tokens: Count | None = Field(
        None, description="tokens to generate; absent: `--default-max-tokens`, or as many as there is room for"
    )
    max_tokens: Count | None = Field(None, description="the older name of `max_completion_tokens`")
    tools: list[dict[str, Any]] | None = Field(
        None, description="handed to the chat template; refused where it reads none. Calls come as text in `content`"
    )
    tool_choice: Literal["auto", "none"] | None = Field(
        None, description="`none` keeps the tools from the template; a call cannot be forced"
    )
    parallel_tool_calls: Literal[True] | None = Field(None, description="true; nothing forbids a second call")
    modalities: list[Literal["text"]] | None = Field(None, description='`["text"]`')
    logprobs: bool = Field(False, description="the log-probability of each token of the answer")
    top_logprobs: Int | None = Field(None, description="beside it, so many of the likeliest; only with `logprobs`")


class CompletionRequest(CommonFields):
    """POST /v1/completions."""

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=64)] = Field(
        description="a text, or up to 64; the choices of the i-th begin at index i * `n`. Token ids are refused"
    )
    max_tokens: Count = Field(16, description="tokens to generate")
    echo: bool = Field(False, description="the prompt before the answer; not with `logprobs`")
    best_of: Int | None = Field(None, description="only with the value of `n`")
    logprobs: Int | None = Field(None, description="log-probabilities, and so many of the likeliest beside each")
