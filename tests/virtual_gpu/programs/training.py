"""A transformer with attention and convolution trained for real, under the allocator of the environment."""

import json
import warnings

import torch
from torch import nn

from vramdoc.virtual_gpu.inside import prepare_torch

warnings.simplefilter("ignore")
prepare_torch(torch)
said = {}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(256, 256, 3, padding=1)
        layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, batch):
        return self.encoder(self.conv(batch.transpose(1, 2)).transpose(1, 2))


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
peaks = []
for length in (64, 256, 128):
    batch = torch.randn(8, length, 256, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    peaks.append(torch.cuda.max_memory_allocated())
said["peaks"] = peaks
said["parameters"] = sum(p.numel() * p.element_size() for p in model.parameters())
said["optimizer_bytes"] = sum(
    value.numel() * value.element_size()
    for state in optimizer.state.values()
    for value in state.values()
)
q = torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.bfloat16)
said["attention"] = list(nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape)
said["image"] = list(
    nn.Conv2d(3, 16, 3, device="cuda")(torch.zeros(1, 3, 64, 64, device="cuda")).shape
)
said["embedding"] = list(
    nn.Embedding(1000, 64, device="cuda")(torch.zeros(4, 7, dtype=torch.long, device="cuda")).shape
)
said["outer"] = list(torch.einsum("bi,bj->bij", *torch.ones(2, 3, 4, device="cuda")).shape)
said["sorted"] = list(torch.randn(5000, device="cuda").sort().values.shape)
said["multinomial"] = list(torch.ones(4, 100, device="cuda").multinomial(5).shape)
said["topk"] = list(torch.randn(4, 1000, device="cuda").topk(8).values.shape)
statistics = torch.cuda.memory_stats()
said["reserved"] = statistics["reserved_bytes.all.current"]
if torch.cuda.get_allocator_backend() == "native":  # the other one keeps no blocks to show
    snapshot = torch.cuda.memory._snapshot()
    said["expandable"] = [s.get("is_expandable", False) for s in snapshot["segments"]]
said["device_used"] = torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]
del model, optimizer, batch, loss, q
torch.cuda.synchronize()
torch.cuda.empty_cache()
said["reserved_at_end"] = torch.cuda.memory_reserved()
print(json.dumps(said))
