"""MixiT and stacks for transformers, which finds them by `auto_map` in config.json. This project
copies the file and never imports it."""

from typing import Any

import torch
import torch.nn.functional as F
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .modeling_mixit import Mixit


class MixitConfig(PretrainedConfig):
    """The content of config.json."""

    model_type = "mixit"


class MixitForCausalLM(PreTrainedModel, GenerationMixin):
    """A stack with the interface of a causal language model of transformers."""

    config_class = MixitConfig
    base_model_prefix = "model"
    _input_embed_layer = "tok_embeddings"

    def __init__(self, config: MixitConfig) -> None:
        super().__init__(config)
        self.model = Mixit(config.to_dict())
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        use_cache: bool | None = None,
        labels: torch.Tensor | None = None,
        logits_to_keep: int = 0,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """`labels` are the inputs, as in other causal models; -100 is ignored. Positions follow
        from `attention_mask`: padding, left or right, has none."""
        for name in ("position_ids", "inputs_embeds"):
            if others.get(name) is not None:
                raise ValueError(f"{name} is not supported: give input_ids and attention_mask")
        if past_key_values is not None and not isinstance(past_key_values, DynamicCache):
            kind = type(past_key_values).__name__
            raise ValueError(f"past_key_values is a {kind}: only a DynamicCache is supported")
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        logits = self.model(input_ids, attention_mask, past_key_values, logits_to_keep)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=past_key_values)
