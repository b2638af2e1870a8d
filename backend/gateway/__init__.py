"""An HTTP front end with OpenAI's interface: JSON in, requests to a running Triton Server's ensemble out.

It knows the server over gRPC alone, and of this project's rooms only backend.text.

    app.py              routes, and what stands around them (guards.py)
    fields.py           what a request may say; reference.py writes docs/gateway.md's tables from it
    translation.py      a request -> prompts and the ensemble's inputs, or a refusal by name
    rendering.py        messages -> the prompt, by the model's chat template
    served_model.py     what the running server takes and gives, asked anew after it was gone
    triton_client.py    gRPC; triton_wire.py: its messages
    generation.py       one stream of pieces for all prompts and choices of a request
    answers.py          pieces -> OpenAI's objects and chunks; log_probs.py, finish.py
    event_stream.py     server-sent events, ended when the client goes
    problems.py         errors in OpenAI's form
"""
