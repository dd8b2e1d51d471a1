"""The target LM and its DFlash-style drafter in plain PyTorch (1.13 on CPU up to 2.11 on GPU)."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TARGET = {
    "vocab": 2048,
    "hidden": 256,
    "layers": 6,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "ffn": 704,
    "ctx": 1024,
    "eps": 1e-5,
    "theta": 10000.0,
}
DRAFTER = {
    "layers": 4,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "ffn": 512,
    "block": 16,
    "target_layer_ids": [1, 3, 5],
}


def rope_table(positions, head_dim, theta, device=None, dtype=torch.float32):
    """cos, sin [positions, head_dim / 2]; angles in float64, then rounded."""
    inverse = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * inverse[None]
    return angle.cos().to(device=device, dtype=dtype), angle.sin().to(device=device, dtype=dtype)


def rope(x, cos, sin):
    """x [..., head_dim], half rotation: pairs (i, i + half). cos, sin broadcast against a half."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def linear(inputs, outputs, std=None):
    module = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(module.weight, 0.0, std or 1.0 / math.sqrt(inputs))
    return module


def causal_attention(q, k, v):
    """q, k, v [B, heads, T, head_dim], KV heads already repeated."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    t = q.shape[2]
    future = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


class Layer(nn.Module):
    """The weights of one layer, of the target or of the drafter."""

    def __init__(self, hidden, eps, config):
        super().__init__()
        self.heads, self.kv_heads = config["heads"], config["kv_heads"]
        self.head_dim, ffn, depth = config["head_dim"], config["ffn"], config["layers"]
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.attn_norm, self.ffn_norm = RMSNorm(hidden, eps), RMSNorm(hidden, eps)
        self.wq, self.wk = linear(hidden, q_width), linear(hidden, kv_width)
        self.wv = linear(hidden, kv_width)
        self.wo = linear(q_width, hidden, 1 / math.sqrt(q_width * 2 * depth))
        self.w_gate, self.w_up = linear(hidden, ffn), linear(hidden, ffn)
        self.w_down = linear(ffn, hidden, 1 / math.sqrt(ffn * 2 * depth))

    def query(self, y):
        return self.wq(y).view(*y.shape[:-1], self.heads, self.head_dim)

    def key(self, y):
        return self.wk(y).view(*y.shape[:-1], self.kv_heads, self.head_dim)

    def value(self, y):
        return self.wv(y).view(*y.shape[:-1], self.kv_heads, self.head_dim)

    def feed_forward(self, x):
        y = self.ffn_norm(x)
        return self.w_down(F.silu(self.w_gate(y)) * self.w_up(y))


class Target(nn.Module):
    def __init__(self, config=TARGET):
        super().__init__()
        self.config = config
        hidden, eps = config["hidden"], config["eps"]
        self.embed = nn.Embedding(config["vocab"], hidden)
        nn.init.normal_(self.embed.weight, 0.0, 0.02)
        self.layers = nn.ModuleList([Layer(hidden, eps, config) for _ in range(config["layers"])])
        self.norm = RMSNorm(hidden, eps)
        cos, sin = rope_table(config["ctx"], config["head_dim"], config["theta"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids, feature_layers=(), drop=0.0):
        """ids [B, T] at positions 0..T-1 -> normalised hidden rows [B, T, hidden] and features
        [B, T, len * hidden]: the residual stream after the named layers, or None."""
        batch, t = ids.shape
        x, features = self.embed(ids), []
        cos, sin = self.cos[:t], self.sin[:t]
        for i, layer in enumerate(self.layers):
            y = layer.attn_norm(x)
            q = rope(layer.query(y).transpose(1, 2), cos, sin)
            k = rope(layer.key(y).transpose(1, 2), cos, sin)
            v = layer.value(y).transpose(1, 2)
            group = layer.heads // layer.kv_heads
            attended = causal_attention(
                q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            )
            change = layer.wo(attended.transpose(1, 2).reshape(batch, t, -1))
            x = x + (F.dropout(change, drop) if drop else change)
            change = layer.feed_forward(x)
            x = x + (F.dropout(change, drop) if drop else change)
            if i in feature_layers:
                features.append(x)
        return self.norm(x), (torch.cat(features, -1) if features else None)

    def head(self, hidden):
        return F.linear(hidden, self.embed.weight.to(hidden.dtype))


class Drafter(nn.Module):
    def __init__(self, target_config=TARGET, config=DRAFTER):
        super().__init__()
        self.config, self.hidden = config, target_config["hidden"]
        hidden, eps = self.hidden, target_config["eps"]
        self.mask_embed = nn.Parameter(torch.randn(hidden) * 0.02)
        self.fc = linear(len(config["target_layer_ids"]) * hidden, hidden)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.layers = nn.ModuleList([Layer(hidden, eps, config) for _ in range(config["layers"])])
        self.norm = RMSNorm(hidden, eps)
        positions = target_config["ctx"] + config["block"]
        cos, sin = rope_table(positions, config["head_dim"], target_config["theta"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, features, bonus_embed, anchors):
        """The training form: many anchors per sequence.

        features [B, T, F] of the target; anchors [B, A], the position of each bonus token;
        bonus_embed [B, A, hidden], its embedding. Block row j stands at position anchor + j and
        sees the features before the anchor and its own block.
        Returns the normalised hidden rows 1..block-1: [B, A, block - 1, hidden].
        """
        device, size = anchors.device, self.config["block"]
        batch, t, _ = features.shape
        context = self.hidden_norm(self.fc(features))
        masks = self.mask_embed.to(bonus_embed.dtype)
        masks = masks.expand(batch, anchors.shape[1], size - 1, self.hidden)
        x = torch.cat([bonus_embed[:, :, None], masks], 2)
        position = anchors[:, :, None] + torch.arange(size, device=device)
        # [B, A, S, 1, half] and [T, 1, half]
        block_rope = self.cos[position][:, :, :, None], self.sin[position][:, :, :, None]
        context_rope = self.cos[:t, None], self.sin[:t, None]
        hidden = torch.arange(t, device=device) >= anchors[:, :, None]
        hidden = hidden[:, None, None, :, None]  # [B, 1, 1, A, 1, T]
        for layer in self.layers:
            x = x + layer.wo(self._attend(layer, x, context, block_rope, context_rope, hidden))
            x = x + layer.feed_forward(x)
        return self.norm(x[:, :, 1:])

    @staticmethod
    def _attend(layer, x, context, block_rope, context_rope, hidden):
        """One softmax over the context rows and the rows of the block: [B, A, S, q_width]."""
        batch, anchors, size, _ = x.shape
        t, dim = context.shape[1], layer.head_dim
        kv, group = layer.kv_heads, layer.heads // layer.kv_heads
        y = layer.attn_norm(x)
        q = rope(layer.query(y), *block_rope).view(batch, anchors, size, kv, group, dim)
        q = q.permute(0, 3, 4, 1, 2, 5)  # [B, kv, group, A, S, dim]
        k = rope(layer.key(y), *block_rope).permute(0, 3, 1, 2, 4)  # [B, kv, A, S, dim]
        v = layer.value(y).permute(0, 3, 1, 2, 4)
        context_k = rope(layer.key(context), *context_rope).transpose(1, 2)  # [B, kv, T, dim]
        context_v = layer.value(context).transpose(1, 2)
        q = q * (dim**-0.5)

        flat = (batch, kv, group * anchors * size, -1)
        split = (batch, kv, group, anchors, size, -1)
        to_context = (q.reshape(flat) @ context_k.transpose(-1, -2)).view(split)
        to_context = to_context.masked_fill(hidden, float("-inf"))
        to_block = q @ k[:, :, None].transpose(-1, -2)
        weights = torch.cat([to_context, to_block], -1).float().softmax(-1).to(v.dtype)
        out = (weights[..., :t].reshape(flat) @ context_v).view(split)
        out = out + weights[..., t:] @ v[:, :, None]
        return out.permute(0, 3, 4, 1, 2, 5).reshape(batch, anchors, size, -1)
