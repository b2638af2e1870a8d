"""langchain-nvidia-trt as its users have it: a whole answer and a stream. Run by the client's own environment."""

import json
import sys

from langchain_nvidia_trt.llms import TritonTensorRTLLM

asked = json.loads(sys.argv[1])
llm = TritonTensorRTLLM(server_url=asked["url"], model_name=asked["model"], tokens=asked["tokens"])
whole = llm.invoke(asked["prompt"])
stopped = llm.invoke(asked["prompt"], stop=asked["stop"])
pieces = list(llm.stream(asked["prompt"]))
print(json.dumps({"whole": whole, "stopped": stopped, "pieces": pieces}))
