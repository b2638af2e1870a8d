"""What genai-perf's converters build for a model, with their options. Run by genai-perf's own environment."""

import json
import sys

from genai_perf.config.input.config_command import ConfigCommand
from genai_perf.inputs.converters import TensorRTLLMConverter, TensorRTLLMEngineConverter, VLLMConverter
from genai_perf.inputs.input_constants import ModelSelectionStrategy, OutputFormat
from genai_perf.inputs.retrievers.generic_dataset import DataRow, FileData, GenericDataset

CONVERTERS = {
    "tensorrtllm": (TensorRTLLMConverter, OutputFormat.TENSORRTLLM),
    "vllm": (VLLMConverter, OutputFormat.VLLM),
    "tensorrtllm_engine": (TensorRTLLMEngineConverter, OutputFormat.TENSORRTLLM_ENGINE),
}
asked = json.loads(sys.argv[1])
converter, output_format = CONVERTERS[asked["converter"]]
config = ConfigCommand({"model_name": asked["model"]}, skip_inferencing_and_checking=True)
config.endpoint.model_selection_strategy = ModelSelectionStrategy.ROUND_ROBIN
config.endpoint.output_format = output_format
config.endpoint.streaming = asked["streaming"]
if asked["tokens"]:
    config.input.output_tokens.mean = asked["tokens"]
    config.input.output_tokens.deterministic = asked["deterministic"]
if asked["extra"]:
    config.input.extra = asked["extra"]
rows = [DataRow(texts=[text]) for text in asked["texts"]]
print(json.dumps(converter(config).convert(GenericDataset(files_data={"texts": FileData(rows=rows)}))))
