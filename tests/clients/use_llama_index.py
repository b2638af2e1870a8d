"""llama-index-llms-nvidia-triton as its users have it. Run by the client's own environment."""

import json
import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.nvidia_triton import NvidiaTriton

asked = json.loads(sys.argv[1])
llm = NvidiaTriton(server_url=asked["url"], tokens=asked["tokens"], triton_load_model_call=True)
answer = llm.complete(asked["prompt"]).text
chat = llm.chat([ChatMessage(role="user", content="Hello")]).message.content
print(json.dumps({"answer": answer, "chat": chat}))
