# SPDX-License-Identifier: Apache-2.0
"""The model pair of examples/tiny_lm: its target as transformers' Llama, its drafter in torch."""

import json
import struct

import torch
import transformers


def load_bf16(path):
    """Name -> float32 tensor, of a safetensors file whose tensors are all bf16."""
    raw = bytearray(path.read_bytes())
    data = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:data]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = torch.frombuffer(raw, dtype=torch.bfloat16, offset=data + begin,
                                      count=(end - begin) // 2)  # fmt: skip
            tensors[name] = values.reshape(entry["shape"]).float()
    return tensors


LLAMA_NAMES = {
    "attn_norm": "input_layernorm",
    "wq": "self_attn.q_proj",
    "wk": "self_attn.k_proj",
    "wv": "self_attn.v_proj",
    "wo": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "w_gate": "mlp.gate_proj",
    "w_up": "mlp.up_proj",
    "w_down": "mlp.down_proj",
}


def llama_name(name):
    if not name.startswith("layers."):
        return {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}[
            name
        ]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{LLAMA_NAMES[part]}.weight"


def load_target(folder, device):
    """A LlamaForCausalLM, as it comes."""
    c = json.loads((folder / "config.json").read_text())["target"]
    config = transformers.LlamaConfig(
        vocab_size=c["vocab"],
        hidden_size=c["hidden"],
        num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"],
        num_key_value_heads=c["kv_heads"],
        head_dim=c["head_dim"],
        intermediate_size=c["ffn"],
        max_position_embeddings=c["ctx"],
        rms_norm_eps=c["eps"],
        rope_theta=c["theta"],
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    model = transformers.LlamaForCausalLM(config).eval().to(torch.float32)
    state = {llama_name(k): v for k, v in load_bf16(folder / "target.safetensors").items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model.requires_grad_(False).to(device)


class Features:
    """The residual stream after some layers, [rows, 3 * hidden], caught by hooks."""

    def __init__(self, model, layers):
        self.caught = [None] * len(layers)
        for i, layer in enumerate(layers):
            model.model.layers[layer].register_forward_hook(self._hook(i))

    def _hook(self, i):
        def keep(module, arguments, output):
            self.caught[i] = output[0] if isinstance(output, tuple) else output

        return keep

    def rows(self):
        return torch.cat(self.caught, -1)


class Drafter:
    """The block drafter (examples/tiny_lm/model/README.md), with the cache of one sequence."""

    def __init__(self, folder, embed):
        both = json.loads((folder / "config.json").read_text())
        c = self.config = both["drafter"]
        device = embed.device
        self.embed, self.depth, self.layers = embed, c["block"] - 1, c["target_layer_ids"]
        self.w = {k: v.to(device) for k, v in load_bf16(folder / "drafter.safetensors").items()}
        inverse = c["theta"] ** (
            -torch.arange(0, c["head_dim"], 2, dtype=torch.float64) / c["head_dim"]
        )
        angle = (
            torch.arange(both["target"]["ctx"] + c["block"], dtype=torch.float64)[:, None] * inverse
        )
        self.cos, self.sin = angle.cos().float().to(device), angle.sin().float().to(device)
        self.reset()

    def reset(self):
        c = self.config
        none = self.embed.new_empty(c["kv_heads"], 0, c["head_dim"])
        self.k, self.v = [none] * c["layers"], [none] * c["layers"]

    def _rms(self, x, name):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.w[name], self.config["eps"])

    def _heads(self, x, begin, turn):
        """[rows, heads * dim] -> [heads, rows, dim], turned by its positions where asked."""
        x = x.view(x.shape[0], -1, self.config["head_dim"]).transpose(0, 1)
        if not turn:
            return x
        cos, sin = (t[begin : begin + x.shape[1]] for t in (self.cos, self.sin))
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def add_context(self, features):
        """Projects the features of newly committed tokens, [rows, 3 * hidden]."""
        begin = self.k[0].shape[1]
        context = self._rms(features @ self.w["fc.weight"].T, "hidden_norm.weight")
        for i in range(len(self.k)):
            k = self._heads(context @ self.w[f"layers.{i}.wk.weight"].T, begin, True)
            v = self._heads(context @ self.w[f"layers.{i}.wv.weight"].T, begin, False)
            self.k[i], self.v[i] = torch.cat([self.k[i], k], 1), torch.cat([self.v[i], v], 1)

    def draft(self, bonus, out):
        """Logits of the positions after the bonus token, into out [depth, vocab]."""
        begin = self.k[0].shape[1]
        x = torch.cat([self.embed[bonus], self.w["mask_embed"].expand(self.depth, -1)])
        for i in range(len(self.k)):
            x = self._layer(i, x, begin)
        torch.mm(self._rms(x[1:], "norm.weight"), self.embed.T, out=out)

    def _layer(self, i, x, begin):
        w = {name: self.w[f"layers.{i}.{name}.weight"] for name in LLAMA_NAMES}
        y = self._rms(x, f"layers.{i}.attn_norm.weight")
        q = self._heads(y @ w["wq"].T, begin, True)
        k = torch.cat([self.k[i], self._heads(y @ w["wk"].T, begin, True)], 1)
        v = torch.cat([self.v[i], self._heads(y @ w["wv"].T, begin, False)], 1)
        group = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        seen = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        x = x + seen.transpose(0, 1).reshape(x.shape[0], -1) @ w["wo"].T
        y = self._rms(x, f"layers.{i}.ffn_norm.weight")
        return x + (torch.nn.functional.silu(y @ w["w_gate"].T) * (y @ w["w_up"].T)) @ w["w_down"].T
