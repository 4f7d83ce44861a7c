"""Training with quantization: LSQ beside torch's own fake quantization, on scikit-learn's digits.

    python examples/lsq_digits.py [--device cuda] [--seeds 5] [--epochs 20]

Weights (by channel) and activations (of the tensor) of three linear layers have codes of 8, 4 or 3 bits. The scales of
`skuda.torch.nn.LSQ` are learned; those of torch.ao.quantization.FakeQuantize follow observers. Both train from the same
weights on the same batches. Prints accuracy on held-out digits over the seeds, the loss as it falls, and the time of a
training step.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import torch
from sklearn.datasets import load_digits
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver, PerChannelMinMaxObserver

import skuda.torch.nn

warnings.filterwarnings("ignore", category=DeprecationWarning)
BITS = (8, 4, 3)
CLASSES, HELD_OUT, BATCH = 10, 400, 128


def of_skuda(bits: int, channels: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """What quantizes the weight and the input of a layer: activations are not negative."""
    return skuda.torch.nn.LSQ(bits, channels), skuda.torch.nn.LSQ(f"u{bits}")


def of_torch(bits: int, channels: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The same by torch: scales that follow the largest weight of a channel, and averages of the largest activation."""
    weight = FakeQuantize(
        PerChannelMinMaxObserver, quant_min=-(2 ** (bits - 1)), quant_max=2 ** (bits - 1) - 1,
        dtype=torch.qint8, qscheme=torch.per_channel_symmetric, ch_axis=0,
    )  # fmt: skip
    return weight, FakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=2**bits - 1, dtype=torch.quint8)


class Quantized(torch.nn.Linear):
    """A linear layer that sees what its weight and its input are as codes."""

    def __init__(self, inputs: int, outputs: int, quantizers=None):
        super().__init__(inputs, outputs)
        self.of_weight, self.of_input = quantizers or (torch.nn.Identity(), torch.nn.Identity())

    def forward(self, x):
        return torch.nn.functional.linear(self.of_input(x), self.of_weight(self.weight), self.bias)


def model_of(make, bits: int, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    sizes = [(64, 96), (96, 96), (96, CLASSES)]
    layers = [Quantized(*size, make(bits, size[1]) if make else None) for size in sizes]
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])


def digits(device: str):
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(data.data, dtype=torch.float32)[order].to(device) / 16
    labels = torch.tensor(data.target)[order].to(device)
    return (images[HELD_OUT:], labels[HELD_OUT:]), (images[:HELD_OUT], labels[:HELD_OUT])


def train(make, bits: int, seed: int, epochs: int, device: str) -> tuple[float, list[float], float]:
    """(accuracy on what was held out, loss of each epoch, milliseconds of a step)."""
    (images, labels), (unseen, truth) = digits(device)
    model = model_of(make, bits, seed).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # to whose pace LSQ fits the scales
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    generator = torch.Generator().manual_seed(seed)
    losses, times = [], []
    for _ in range(epochs):
        total = 0.0
        order = torch.randperm(len(images), generator=generator).to(device)
        begun, batches = time.perf_counter(), order.split(BATCH)
        for batch in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        losses.append(float(total) / len(batches))  # which waits for the device
        times.append((time.perf_counter() - begun) / len(batches) * 1e3)
        schedule.step()
    with torch.no_grad():
        accuracy = (model.eval()(unseen).argmax(1) == truth).float().mean()
    return float(accuracy), losses, statistics.median(times)


def run(seeds: int = 5, epochs: int = 20, device: str = "cpu") -> dict[tuple[str, int], dict]:
    """Trains all; prints the table. Returns accuracies and mean losses by (whose, bits)."""
    if device == "cpu":
        torch.set_num_threads(1)  # the matrices are small
    kinds = [("f32", None, 32), *((name, make, bits) for bits in BITS for name, make in KINDS.items())]
    shown = sorted({0, epochs // 4, epochs // 2, epochs - 1})
    epochs_shown = " ".join(f"{'epoch ' + str(epoch + 1):>9}" for epoch in shown)
    print(f"{'bits':>4} {'quantizer':<12} {'accuracy, %':>14} {'ms a step':>10}   loss: {epochs_shown}")
    found = {}
    for name, make, bits in kinds:
        accuracies, losses, times = zip(*(train(make, bits, seed, epochs, device) for seed in range(seeds)))
        curve = [statistics.mean(each) for each in zip(*losses)]
        spread = statistics.pstdev(accuracies) * 100
        text = f"{statistics.mean(accuracies) * 100:.1f} +- {spread:.1f}"
        losses_shown = " ".join(f"{curve[epoch]:9.4f}" for epoch in shown)
        print(f"{bits:>4} {name:<12} {text:>14} {min(times):>10.2f}         {losses_shown}", flush=True)
        found[name, bits] = {"accuracies": accuracies, "losses": curve, "milliseconds": min(times)}
    return found


KINDS = {"skuda LSQ": of_skuda, "torch": of_torch}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    run(**vars(parser.parse_args()))
