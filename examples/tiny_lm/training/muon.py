"""The optimiser of both models: Muon for matrices, AdamW for the rest."""

import torch
import torch.nn as nn


def newton_schulz(gradients, steps=5):
    """gradients [n, rows, columns] -> approximately the nearest semi-orthogonal matrix of each."""
    x = gradients.bfloat16() if gradients.is_cuda else gradients.float()
    transposed = x.shape[1] > x.shape[2]
    if transposed:
        x = x.transpose(1, 2)
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(steps):
        a = x @ x.transpose(1, 2)
        b = -4.7750 * a + 2.0315 * (a @ a)
        x = 3.4445 * x + b @ x
    return (x.transpose(1, 2) if transposed else x).to(gradients.dtype)


class Optimiser:
    """Muon for the 2-D matrices of the layers and fc; AdamW for embeddings, norms and the mask.

    Matrices of one shape are orthogonalised together.
    """

    def __init__(self, model, muon_rate=0.02, adam_rate=3e-3, decay=0.1, momentum=0.95):
        self.groups, rest = {}, []
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                self.groups.setdefault(tuple(parameter.shape), []).append(parameter)
            else:
                rest.append(parameter)
        self.buffers = {
            shape: torch.zeros((len(group),) + shape, device=group[0].device)
            for shape, group in self.groups.items()
        }
        self.muon_rate, self.adam_rate = muon_rate, adam_rate
        self.decay, self.momentum = decay, momentum
        self.adam = torch.optim.AdamW(
            rest, lr=adam_rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0
        )
        self.parameters = [p for group in self.groups.values() for p in group] + rest

    @torch.no_grad()
    def step(self, factor):
        """One step with every learning rate times `factor`, 0..1; clears the gradients."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for shape, group in self.groups.items():
            self._muon_step(shape, group, factor)
        for adam_group in self.adam.param_groups:
            adam_group["lr"] = self.adam_rate * factor
        self.adam.step()
        for parameter in self.parameters:
            parameter.grad = None

    def _muon_step(self, shape, group, factor):
        gradient = torch.stack([p.grad for p in group])
        buffer = self.buffers[shape]
        buffer.mul_(self.momentum).add_(gradient, alpha=1 - self.momentum)
        update = newton_schulz(gradient * (1 - self.momentum) + buffer * self.momentum)
        size = self.muon_rate * factor * max(1.0, shape[0] / shape[1]) ** 0.5
        for parameter, change in zip(group, update.unbind(0)):
            parameter.mul_(1 - self.muon_rate * factor * self.decay).add_(change, alpha=-size)
