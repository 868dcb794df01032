"""A torch module whose linear layers become INT4 and multiply activations in INT8, saved and loaded: quantize_module.py FILE.pt"""

import sys

import metal_marlin as mm
import torch
from metal_marlin.torch import load_quantized_, quantize_


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = torch.nn.Linear(256, 512), torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))
        return y


if len(sys.argv) != 2:
    sys.exit("usage: quantize_module.py FILE.pt")
path = sys.argv[1]
torch.manual_seed(0)
model, x = Mlp().eval(), torch.randn(8, 256)
with torch.no_grad():
    floats = model(x)
    quantize_(model, mm.Quantize(mm.Format.INT4, 32), compute=mm.Compute.INT8)
    y = model(x)
    torch.save(model.state_dict(), path)  # codes and scales: a seventh of the bytes of float32

    with torch.device("meta"):
        again = Mlp().eval()  # no memory for floats
    load_quantized_(again, torch.load(path), compute=mm.Compute.INT8)
    assert torch.equal(again(x), y)

print(again)
print(f"relative error of the quantized module: {(y - floats).norm() / floats.norm():.3f}")
