"""safetensors files of bf16 tensors, written and read by hand."""

import json
import struct

import torch


def save_bf16(model, path, metadata=None):
    """Writes the model's state, rounded to bf16, tensors in the order of their names."""
    header, blobs, offset = {}, [], 0
    if metadata:
        header["__metadata__"] = {key: str(value) for key, value in metadata.items()}
    for name, tensor in sorted(model.state_dict().items()):
        rounded = tensor.detach().to("cpu", torch.bfloat16).contiguous()
        blob = rounded.view(torch.int16).numpy().tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def load_bf16(path):
    """Returns name -> float32 tensor."""
    with open(path, "rb") as file:
        raw = file.read()
    data = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:data]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(bytearray(raw[data + begin : data + end]), dtype=torch.int16)
        tensors[name] = values.view(torch.bfloat16).reshape(entry["shape"]).float()
    return tensors


def round_bf16_(model):
    """Rounds every parameter to bf16 in place: the rounded model is the one that counts."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16).to(parameter.dtype))
