"""A conversation as one prompt, by the chat template that lies beside the model's tokenizer.

Uses jinja2 alone: loading the tokenizer itself would take longer than the first token of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn


class ChatTemplate(NamedTuple):
    """A template's source, the special tokens it may name, and the text that the tokenizer puts in front by itself."""

    source: str
    special_tokens: dict[str, str]
    added_prefix: str = ""

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The prompt that asks the model to answer `messages`; raises ValueError with the template's complaint.

        tools: descriptions of functions, which a template without `reads_tools` leaves out.
        """
        import jinja2

        values = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": True}
        try:
            template = _environment().from_string(self.source)
            text = str(template.render(**values, **self.special_tokens))
        except jinja2.TemplateError as error:
            raise ValueError(f"the model's chat template: {error}") from error
        # The server tokenizes with special tokens: with the template's own there would be two.
        return text.removeprefix(self.added_prefix)

    @property
    def reads_tools(self) -> bool:
        """Whether the template looks at `tools`; raises ValueError where it is no template at all."""
        import jinja2
        from jinja2.meta import find_undeclared_variables

        try:
            return "tools" in find_undeclared_variables(_environment().parse(self.source))
        except jinja2.TemplateError as error:
            raise ValueError(f"the model's chat template: {error}") from error


def find(directory: Path) -> ChatTemplate | None:
    """The template in a Hugging Face directory; None when it has none. Raises OSError when it cannot be read."""
    config = directory / "tokenizer_config.json"
    settings: dict[str, Any] = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    beside = directory / "chat_template.jinja"
    template = beside.read_text(encoding="utf-8") if beside.exists() else settings.get("chat_template")
    if isinstance(template, list):  # several named templates
        template = next((each["template"] for each in template if each["name"] == "default"), None)
    if template is None:
        return None
    texts = {name: _token_text(token) for name, token in settings.items() if name.endswith("_token")}
    special = {name: text for name, text in texts.items() if text is not None}
    begin = special.get("bos_token", "")
    added = begin and "bos_token" in template and _tokenizer_adds(begin, directory, settings)
    return ChatTemplate(template, special, begin if added else "")


def _tokenizer_adds(token: str, directory: Path, settings: dict[str, Any]) -> bool:
    """Whether the tokenizer begins every text with `token`."""
    if settings.get("add_bos_token") is not None:
        return bool(settings["add_bos_token"])
    try:
        processor = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8")).get("post_processor")
    except FileNotFoundError:
        return False
    return json.dumps(token) in json.dumps(processor)


def _token_text(token: object) -> str | None:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _environment() -> Any:
    # The settings that model authors write their templates against (transformers' documentation of chat templates).
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    return environment


def _refuse(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)
