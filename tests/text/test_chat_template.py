from __future__ import annotations

import json

import pytest

from backend.text import chat_template

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}\n[{{ m.role }}] {{ m.content }}\n{% endfor %}\n"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
MESSAGES = [{"role": "user", "content": "hi é"}]
RENDERED = "<s>[user] hi é\n[assistant]"


def _config(directory, **settings):
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def test_the_template_of_the_tokenizer_config_is_rendered_with_its_special_tokens(tmp_path):
    _config(tmp_path, chat_template=TEMPLATE, bos_token={"content": "<s>"}, eos_token=None)
    assert chat_template.find(tmp_path).render(MESSAGES) == RENDERED


def test_a_template_in_its_own_file_comes_first(tmp_path):
    _config(tmp_path, chat_template="old", bos_token="<s>")
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert chat_template.find(tmp_path).render(MESSAGES) == RENDERED


def test_of_several_named_templates_the_default_is_taken(tmp_path):
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    _config(tmp_path, chat_template=named, bos_token="<s>")
    assert chat_template.find(tmp_path).render(MESSAGES) == RENDERED


def test_a_begin_token_that_the_tokenizer_adds_itself_is_left_to_it(tmp_path):
    _config(tmp_path, chat_template=TEMPLATE, bos_token="<s>", add_bos_token=True)
    assert chat_template.find(tmp_path).render(MESSAGES) == RENDERED.removeprefix("<s>")
    _config(tmp_path, chat_template=TEMPLATE, bos_token="<s>")
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": {"single": single}}))
    assert chat_template.find(tmp_path).render(MESSAGES) == RENDERED.removeprefix("<s>")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": None}))
    assert chat_template.find(tmp_path).render(MESSAGES) == RENDERED


def test_no_template_is_told_apart_from_a_template_that_refuses(tmp_path):
    assert chat_template.find(tmp_path) is None
    _config(tmp_path, chat_template="{{ raise_exception('no system role') }}")
    with pytest.raises(ValueError, match="chat template: no system role"):
        chat_template.find(tmp_path).render(MESSAGES)


def test_the_prompt_equals_the_one_that_transformers_renders(tmp_path):
    from transformers.utils.chat_template_utils import render_jinja_template

    template = (
        (
            "{% for m in messages %}\n    {% if loop.first %}{% continue %}{% endif %}\n{{ m | tojson }}\n"
            "  {% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        )
        .replace("{% generation %}", "")
        .replace("{% endgeneration %}", "")
    )
    _config(tmp_path, chat_template=template)
    messages = [*MESSAGES, {"role": "assistant", "content": "<b>'q'"}]
    theirs, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True)
    assert chat_template.find(tmp_path).render(messages) == theirs[0]
