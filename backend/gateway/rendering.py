"""Messages -> the prompt, by the model's own chat template."""

from __future__ import annotations

import json
from typing import Any

from backend.gateway.fields import ChatRequest, Message
from backend.gateway.problems import ApiError, refused
from backend.gateway.served_model import ServedModel


def rendered(body: ChatRequest, model: ServedModel) -> str:
    """Raises ApiError where there is no template, it reads no tools, or it cannot take these messages."""
    if model.template is None:
        raise ApiError(400, "the served model has no chat template; /v1/completions takes plain text",
                       code="no_chat_template")  # fmt: skip
    tools = body.tools if body.tool_choice != "none" else None
    if body.tools and not model.reads_tools:
        raise refused("tools", "the chat template of the served model has no tools", "unsupported_parameter")
    try:
        return model.template.render([_for_template(message) for message in body.messages], tools or None)
    except ValueError as error:
        raise refused("messages", str(error)) from None
    except Exception:  # a template is a program, which nobody wrote with every message in mind
        raise refused("messages", "the model's chat template cannot take these messages") from None


def _for_template(message: Message) -> dict[str, Any]:
    """What templates are written against: text in place of parts, arguments as objects, no developer."""
    given = message.model_dump(exclude_none=True, exclude={"refusal", "annotations"})
    if message.role == "developer":
        given["role"] = "system"
    if not isinstance(message.content, str):
        given["content"] = "\n".join(part.text for part in message.content or ())
    if message.tool_calls:
        given["tool_calls"] = [_with_object(call) for call in message.tool_calls]
    return given


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's clients send a call's arguments as JSON text."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return call | {"function": function | {"arguments": arguments}}
