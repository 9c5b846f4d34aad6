"""MixiT for transformers, which finds it by `auto_map` in config.json. This project copies the file
and does not import it."""

from typing import Any

import torch
import torch.nn.functional as F
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .modeling_mixit import Mixit


class MixitConfig(PretrainedConfig):
    model_type = "mixit"


class MixitForCausalLM(PreTrainedModel):
    config_class = MixitConfig
    base_model_prefix = "model"

    def __init__(self, config: MixitConfig) -> None:
        super().__init__(config)
        self.model = Mixit(config.to_dict())
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None, **_: Any
    ) -> CausalLMOutput:
        """`labels` are the inputs, as with other causal models; -100 is ignored."""
        logits = self.model(input_ids)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)
