"""The modules of skuda.torch.nn beside torch's, and skuda.torch.patch."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from operations import same

import skuda
import skuda.torch.nn as nn
from skuda.errors import InvalidProblem, Unsupported
from skuda.torch import patch


def rows(*shape, seed=0, **options):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), **options)


def filled(module, seed=1):
    """A module whose parameters are random."""
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(rows(*parameter.shape, seed=seed + index) / math.sqrt(parameter.shape[-1]))
    return module


PAIRS = [
    (nn.RMSNorm, torch.nn.RMSNorm, (8,), {}),
    (nn.RMSNorm, torch.nn.RMSNorm, ((6, 8),), {"eps": 1e-3}),
    (nn.RMSNorm, torch.nn.RMSNorm, ((6, 8),), {"elementwise_affine": False}),
    (nn.LayerNorm, torch.nn.LayerNorm, (8,), {}),
    (nn.LayerNorm, torch.nn.LayerNorm, ((6, 8),), {"bias": False}),
    (nn.LayerNorm, torch.nn.LayerNorm, ((6, 8),), {"elementwise_affine": False, "eps": 1e-2}),
    (nn.Softmax, torch.nn.Softmax, (), {"dim": 1}),
    (nn.GELU, torch.nn.GELU, (), {}),
    (nn.GELU, torch.nn.GELU, ("tanh",), {}),
    (nn.GroupNorm, torch.nn.GroupNorm, (3, 6), {}),
    (nn.GroupNorm, torch.nn.GroupNorm, (2, 6), {"affine": False, "eps": 1e-2}),
    (nn.InstanceNorm1d, torch.nn.InstanceNorm1d, (6,), {"affine": True}),
    (nn.InstanceNorm1d, torch.nn.InstanceNorm1d, (6,), {}),
    (nn.BatchNorm1d, torch.nn.BatchNorm1d, (6,), {}),
    (nn.BatchNorm1d, torch.nn.BatchNorm1d, (6,), {"affine": False, "track_running_stats": False}),
]


@pytest.mark.parametrize("ours, theirs, given, options", PAIRS)
def test_a_module_is_as_torchs(ours, theirs, given, options):
    wanted, found = filled(theirs(*given, **options)), ours(*given, **options)
    found.load_state_dict(wanted.state_dict())
    assert isinstance(found, theirs)
    results = []
    for module in (wanted, found):
        x = rows(3, 6, 8, requires_grad=True)
        y = module(x)
        y.square().sum().backward()
        results.append((y.detach(), x.grad, *[parameter.grad for parameter in module.parameters()]))
    for expected, actual in zip(*results, strict=True):
        assert actual.dtype == expected.dtype
        assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"momentum": 0.5, "eps": 1e-2}])
@pytest.mark.parametrize("name", ["BatchNorm2d", "BatchNorm3d"])
def test_a_batch_norm_keeps_torchs_statistics(name, options):
    shape = (3, 4, 5, 2, 6)[: 5 if name.endswith("3d") else 4]
    found, wanted = getattr(nn, name)(4, **options), getattr(torch.nn, name)(4, **options)
    for step in range(3):
        assert torch.allclose(found(rows(*shape, seed=step)), wanted(rows(*shape, seed=step)), atol=1e-5)
    for key, value in wanted.state_dict().items():
        assert torch.allclose(found.state_dict()[key], value, atol=1e-6), key
    assert torch.allclose(found.eval()(rows(*shape)), wanted.eval()(rows(*shape)), atol=1e-5)
    half = found.train()(rows(*shape).half())
    assert half.dtype == torch.float16 and found.running_mean.dtype == torch.float32


@pytest.mark.parametrize("norm, shape", [(nn.InstanceNorm2d, (6, 4, 5)), (nn.InstanceNorm3d, (6, 4, 5, 2))])
def test_an_instance_norm_takes_one_sample(norm, shape):
    assert same(norm(6)(rows(*shape)), norm(6)(rows(*shape)[None])[0])
    with pytest.raises(Unsupported, match="track_running_stats is True, expected False"):
        norm(6, track_running_stats=True)(rows(*shape))


@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
def test_a_norm_without_a_weight_checks_the_shape(norm):
    with pytest.raises(InvalidProblem, match=r"input is \(3, 8\), expected \[..., 6, 8\]"):
        norm((6, 8), elementwise_affine=False)(rows(3, 8))


@pytest.mark.parametrize("shape, axis", [((4,), 0), ((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 4, 5), 1)])
def test_softmax_without_an_axis(shape, axis):
    assert same(nn.Softmax()(rows(*shape)), skuda.softmax(rows(*shape), axis=axis))


# ---- codes of 8 bits ----


def by_definition(linear, x):
    """What a layer of s8 codes gives, in f64 from the codes, so that only the last steps round."""
    weight_scale, weight = skuda.dynamic_quantize_per_token(linear.weight.detach(), dtype="s8")
    scale, codes = skuda.dynamic_quantize_per_token(x, dtype="s8")
    sums = codes.double() @ weight.double().t()
    return sums * scale.double()[..., None] * weight_scale.double() + linear.bias.detach().double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24), (24,), (0, 24)])
def test_a_linear_layer_of_s8(shape, dtype):
    linear = filled(torch.nn.Linear(24, 40)).to(dtype)
    x = rows(*shape).to(dtype)
    found = nn.Linear8Bit.of(linear)(x)
    wanted = by_definition(linear, x)
    assert found.dtype == dtype and found.shape == wanted.shape
    assert torch.allclose(found.double(), wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_of_e4m3(dtype):
    linear, x = filled(torch.nn.Linear(24, 40)).to(dtype), rows(5, 24).to(dtype)
    weight_scale, weight = skuda.dynamic_quantize_fp8_per_token(linear.weight.detach(), dtype="e4m3")
    scale, codes = skuda.dynamic_quantize_fp8_per_token(x, dtype="e4m3")
    wanted = codes.double() @ weight.double().t() * scale.double()[:, None] * weight_scale.double()
    found = nn.Linear8Bit.of(linear, "e4m3")(x)
    assert found.dtype == dtype
    assert torch.allclose(found.double(), wanted + linear.bias.detach(), rtol=0.01, atol=1e-5)


@pytest.mark.parametrize("code", ["s8", "e4m3"])
def test_a_linear_layer_loads_weights_and_codes_and_keeps_them_when_cast(code):
    linear, x = filled(torch.nn.Linear(24, 40)), rows(5, 24)
    wanted = nn.Linear8Bit.of(linear, code)(x)
    of_weights, of_codes = nn.Linear8Bit(24, 40, code=code), nn.Linear8Bit(24, 40, code=code)
    of_weights.load_state_dict(linear.state_dict())
    of_codes.load_state_dict(of_weights.state_dict())
    assert same(of_weights(x), wanted) and same(of_codes(x), wanted)
    cast = of_codes.to(torch.bfloat16)
    assert (cast.weight.dtype, cast.weight_scale.dtype, cast.bias.dtype) == (
        of_weights.weight.dtype, torch.float32, torch.bfloat16,
    )  # fmt: skip
    assert same(cast.weight.view(torch.int8), of_weights.weight.view(torch.int8))


@pytest.mark.parametrize("code", ["s8", "e4m3"])
def test_a_linear_layer_compiled(code):
    torch._dynamo.reset()
    layer = nn.Linear8Bit.of(filled(torch.nn.Linear(24, 40)), code, before=filled(nn.RMSNorm(24)))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for count in (5, 7):
        with torch.no_grad():
            assert same(compiled(rows(count, 24)), layer(rows(count, 24)))


@pytest.mark.parametrize(
    "before, name",
    [
        (filled(nn.RMSNorm(24)), "rms_norm"),
        (filled(nn.LayerNorm(24)), "layer_norm"),
        (filled(nn.LayerNorm(24, bias=False)), "layer_norm"),
        (nn.GELU(), "gelu"),
        (nn.GELU("tanh"), "gelu_tanh"),
        (nn.Softmax(-1), "softmax"),
    ],
)
def test_what_is_before_a_linear_layer_is_in_its_kernel(before, name):
    x, weights = rows(5, 24).bfloat16(), [each.detach() for each in before.parameters()]
    options = {"eps": before.eps or torch.finfo(x.dtype).eps} if hasattr(before, "eps") else {}
    with torch.no_grad():
        for code, operation in (("s8", f"{name}_dynamic_quantize"), ("e4m3", f"{name}_dynamic_quantize_fp8")):
            found = nn.quantized(x, code, before)
            if hasattr(skuda, operation):
                wanted = getattr(skuda, operation)(x, *weights, **options, dtype=code)
            else:  # there is no such row: what is before is rounded
                wanted = skuda.dynamic_quantize_fp8_per_token(before(x), dtype=code)
            assert same(tuple(found[:2]), tuple(wanted)) and found.dtype == x.dtype
    assert hasattr(skuda, f"{name}_dynamic_quantize_fp8") == (name != "softmax")


@pytest.mark.parametrize("code, kind", [("s8", ""), ("e4m3", "_fp8")])
def test_an_operation_before_by_its_name(code, kind):
    gate, up = rows(5, 24).bfloat16(), rows(5, 24, seed=7).bfloat16()
    of_codes = getattr(skuda, f"silu_mul_dynamic_quantize{kind}")(gate, up, dtype=code)
    assert same(tuple(nn.quantized((gate, up), code, "silu_mul")[:2]), tuple(of_codes))
    alone = getattr(skuda, f"dynamic_quantize{kind}_per_token")(skuda.standardize(gate), dtype=code)
    assert same(tuple(nn.quantized(gate, code, "standardize")[:2]), tuple(alone))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows_, inputs, outputs", [(5, 20, 50), (20, 32, 48), (0, 32, 48), (1, 32, 50)])
def test_the_products_of_gpus(monkeypatch, rows_, inputs, outputs, dtype):
    """torch's own, of padded matrices, which the CPU has too: e4m3 gives nearly the same values."""
    x, bias = rows(rows_, inputs).to(dtype), rows_ != 20
    linear = filled(torch.nn.Linear(inputs, outputs, bias=bias)).to(dtype)
    layer, shapes, function = nn.Linear8Bit.of(linear, "e4m3"), [], torch._scaled_mm
    wanted = layer(x)

    def noted(left, right, **options):
        shapes.append((*left.shape, right.shape[1]))
        return function(left, right, **options)

    monkeypatch.setattr(torch, "_scaled_mm", noted)
    monkeypatch.setattr("skuda.torch.linear.has_scaled_product", lambda device: True)
    found = layer(x)
    assert found.dtype == dtype and found.shape == wanted.shape
    assert torch.allclose(found.float(), wanted.float(), rtol=0.02, atol=0.02)
    ((few, deep, wide),) = shapes
    assert few >= 1 and deep % 16 == 0 and wide % 16 == 0


def test_codes_have_no_gradient():
    layer, x = nn.Linear8Bit.of(filled(torch.nn.Linear(24, 40))), rows(5, 24, requires_grad=True)
    with pytest.raises(Unsupported, match="no gradient is declared"):
        layer(x).sum().backward()


def test_what_a_linear_layer_refuses():
    with pytest.raises(InvalidProblem, match="code is 's4', expected one of s8, e4m3"):
        nn.Linear8Bit(24, 40, code="s4")
    with pytest.raises(InvalidProblem, match=r"x has torch.float64 elements"):
        nn.quantized(rows(5, 24).double())


def test_swiglu():
    module, x = filled(nn.SwiGLU(24, 40)), rows(5, 24)
    gate, up = module.gate_proj(x), module.up_proj(x)
    assert torch.allclose(module(x), module.down_proj(torch.nn.functional.silu(gate) * up), atol=1e-6)
    for name in ("gate_proj", "up_proj", "down_proj"):
        setattr(module, name, nn.Linear8Bit.of(getattr(module, name)))
    codes = nn.quantized(x)
    product = nn.quantized((module.gate_proj(codes), module.up_proj(codes)), before="silu_mul")
    found = nn.gated(module.gate_proj, module.up_proj, codes)  # f32 is computed in f32: nothing is rounded between
    assert same(found.scale, product.scale) and same(found.values, product.values)
    assert same(module(x), module.down_proj(product)) and same(module(x[None])[0], module(x))
    half = module(x.bfloat16()).float()
    assert torch.allclose(half, module(x), atol=0.05 * float(module(x).abs().max()))
    module.up_proj = nn.Linear8Bit.of(filled(torch.nn.Linear(24, 40)))  # with a bias: a kernel for each
    product = nn.quantized((module.gate_proj(codes), module.up_proj(codes)), before="silu_mul")
    assert same(module(x), module.down_proj(product))


# ---- fake quantization ----


@pytest.mark.parametrize("granularity", ["per_tensor", "per_token", "per_channel", "per_group"])
@pytest.mark.parametrize("dtype, symmetric", [(torch.int8, True), ("int4", True), (3, True), ("u8", False), (4, False)])
def test_fake_quantize_is_there_and_back(granularity, dtype, symmetric):
    module = nn.FakeQuantize(
        dtype, granularity, is_symmetric=symmetric, group_size=4 if granularity == "per_group" else None
    )
    x = rows(6, 8, requires_grad=True)
    scale, zero_point = module.parameters_of(x.detach())
    codes = {
        "per_tensor": lambda each: each, "per_token": lambda each: each[:, None],
        "per_channel": lambda each: each[:, None], "per_group": lambda each: each.repeat_interleave(4, dim=1),
    }[granularity]  # fmt: skip
    zero = 0 if zero_point is None else codes(zero_point)
    step = codes(scale)
    wanted = (torch.clamp(torch.round(x.detach() / step) + zero, module.q_min, module.q_max) - zero) * step
    found = module(x)
    assert torch.equal(found.detach(), wanted)
    found.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))  # a scale of its own leaves none out of range


def test_a_static_fake_quantizer_keeps_its_first_scale():
    module = nn.FakeQuantize(torch.int8, "per_tensor", is_dynamic=False)
    module(rows(6, 8))
    scale = module.scale.clone()
    x = (4 * rows(6, 8, seed=3)).requires_grad_()
    module(x).sum().backward()
    assert same(module.scale, scale) and 0 < x.grad.sum() < x.numel()
    other = nn.FakeQuantize(torch.int8, "per_tensor", is_dynamic=False)
    other.load_state_dict(module.state_dict())
    assert same(other(x).detach(), module(x).detach())


def test_torchaos_granularities_by_their_names():
    class PerGroup:
        group_size = 4

    class MappingType:
        def __str__(self):
            return "MappingType.ASYMMETRIC"

    module = nn.FakeQuantize("TorchAODType.INT4", PerGroup(), MappingType())
    assert (module.granularity, module.group_size, module.is_symmetric, module.q_min) == ("per_group", 4, False, -8)
    for options in ({"granularity": "per_row"}, {"granularity": "per_group"}, {"range_learning": True}, {}):
        with pytest.raises(InvalidProblem):
            nn.FakeQuantize(torch.int8, **options)


@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("channels", [None, 6])
def test_lsq_is_its_definition(bits, channels):
    """The paper's forward pass and gradients, by torch's autograd with a straight-through rounding."""
    x, module = rows(6, 8, requires_grad=True), nn.LSQ(bits, channels)
    found = module(x)
    found.square().sum().backward()
    q_min, q_max = module.q_min, module.q_max
    mean = x.detach().abs().mean(dim=1 if channels else (0, 1))
    assert torch.allclose(module.scale.detach(), 2 * mean / math.sqrt(q_max)) and module.scale.shape == (channels or 1,)
    other, scale = x.detach().clone().requires_grad_(), module.scale.detach().clone().requires_grad_()
    factor = 1 / math.sqrt(x.numel() / (channels or 1) * q_max)
    slowed = scale * factor + (scale * (1 - factor)).detach()
    step = slowed[:, None] if channels else slowed
    steps = torch.clamp(other / step, q_min, q_max)
    wanted = (steps + (torch.round(steps) - steps).detach()) * step
    wanted.square().sum().backward()
    assert torch.allclose(found, wanted, atol=1e-6)
    assert torch.allclose(x.grad, other.grad, atol=1e-5)
    assert torch.allclose(module.scale.grad, scale.grad, rtol=1e-4, atol=1e-6)


def test_lsq_begins_once():
    module = nn.LSQ(4)
    module(rows(6, 8))
    scale = module.scale.detach().clone()
    module(100 * rows(6, 8))
    assert same(module.scale.detach(), scale)
    other = nn.LSQ(4)
    other.load_state_dict(module.state_dict())
    other(100 * rows(6, 8))
    assert same(other.scale.detach(), scale)


# ---- patch ----


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        norm = torch.nn.LayerNorm(8)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), norm, torch.nn.GELU(), torch.nn.Linear(8, 8), norm)
        self.softmax = torch.nn.Softmax(-1)
        self.hooked = torch.nn.GELU()
        self.hooked.register_forward_hook(lambda module, inputs, output: output + 1)
        self.own = type("OwnNorm", (torch.nn.LayerNorm,), {"forward": lambda self, x: x})(8)
        self.tied, self.table = torch.nn.Linear(8, 8), torch.nn.Embedding(8, 8)
        self.tied.weight = self.table.weight

    def forward(self, x):
        return self.tied(self.own(self.hooked(self.softmax(self.layers(x)))))


def test_patch_replaces_by_class_and_says_what_it_left():
    model, x = filled(Mixed()), rows(3, 8)
    modules, wanted = dict(model.named_modules(remove_duplicate=False)), model(x)
    parameters = [id(each) for each in model.parameters()]
    report = patch(model)
    assert report.replaced == {
        "layers.1": "LayerNorm", "layers.2": "GELU", "layers.4": "LayerNorm", "softmax": "Softmax"
    }  # fmt: skip
    assert model.layers[1] is model.layers[4] and type(model.layers[1]) is nn.LayerNorm
    assert report.kept["hooked"] == "it has hooks, which would be lost"
    assert report.kept["own"] == "a subclass of LayerNorm may compute something else"
    assert [id(each) for each in model.parameters()] == parameters
    assert torch.allclose(model(x), wanted, atol=1e-6)
    assert "LayerNorm  2      LayerNorm  layers.1 ... layers.4" in repr(report)
    report.undo()
    assert dict(model.named_modules(remove_duplicate=False)) == modules
    report.undo()


def test_patch_of_linear_layers():
    model, x = filled(Mixed()).eval(), rows(3, 8)
    wanted = model(x)
    report = patch(model, linear="s8", keep=("layers.3",))
    assert type(model.layers[0]) is nn.Linear8Bit and type(model.layers[3]) is torch.nn.Linear
    assert report.kept["layers.3"] == "it was asked to stay"
    assert report.kept["tied"] == "its weight is another module's too"
    assert torch.allclose(model(x), wanted, atol=0.1) and not torch.equal(model(x), wanted)
    report.undo()
    assert same(model(x).detach(), wanted.detach())
    with pytest.raises(InvalidProblem, match="linear is 's4'"):
        patch(model, linear="s4")


@pytest.mark.parametrize("layers", [0, 2])
def test_layers_whose_parent_reads_their_weights_stay(layers):
    """torch's encoder computes with `linear1.weight` where no gradient is recorded."""
    model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = (torch.nn.TransformerEncoder(model, layers) if layers else model).eval()
    x = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = model(x)
        report = skuda.torch.patch(model, linear="s8")
        torch.testing.assert_close(model(x), expected)
    left = {entry.name.rpartition(".")[2]: entry.reason for entry in report.entries if not entry.became}
    for name in ("linear1", "linear2"):
        assert left[name] == "TransformerEncoderLayer reads its weight without calling it"


class OwnRMSNorm(torch.nn.Module):
    def __init__(self, width, inside=None, buffer=False):
        super().__init__()
        self.weight, self.eps, self.calls = torch.nn.Parameter(torch.ones(width)), 1e-6, 0
        self.inside = inside or (lambda x: x)
        if buffer:
            self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.inside(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight)


class FlaggedRMSNorm(OwnRMSNorm):
    def forward(self, x, flag=False):
        return -super().forward(x) if flag else super().forward(x)


@pytest.mark.parametrize(
    "norm, reason",
    [
        (OwnRMSNorm(8), ""),
        (OwnRMSNorm(8, torch.nn.Dropout()), "it has a Dropout, which would be lost"),
        (OwnRMSNorm(8, buffer=True), "it has buffers, which would be lost"),
        (FlaggedRMSNorm(8), "its forward takes x, flag, expected one tensor"),
    ],
)
def test_a_norm_of_which_a_trial_does_not_show_all_stays(norm, reason):
    model = torch.nn.Sequential(norm).eval()
    (entry,) = skuda.torch.patch(model).entries
    assert entry.reason == reason and bool(entry.became) is not bool(reason)
    assert norm.calls == 0


def test_a_model_that_would_be_replaced_itself_is_named():
    for model, linear in ((torch.nn.LayerNorm(16), None), (torch.nn.Linear(16, 4), "s8")):
        (entry,) = skuda.torch.patch(model, linear=linear).entries
        assert entry.reason == "nothing has it, in which it could be replaced" and not entry.became


@pytest.mark.parametrize("model, keep, said", [
    (None, (), "model is None, expected a torch.nn.Module"),
    ([torch.nn.GELU()], (), "expected a torch.nn.Module"),
    (torch.nn.Sequential(torch.nn.GELU()), None, "keep has None, expected names"),
    (torch.nn.Sequential(torch.nn.GELU()), [5], "keep has 5, expected names"),
])  # fmt: skip
def test_what_patch_refuses(model, keep, said):
    with pytest.raises(InvalidProblem, match=said):
        skuda.torch.patch(model, keep=keep)


def test_what_was_replaced_again_is_not_undone():
    model = filled(Mixed())
    report = patch(model)
    model.softmax = torch.nn.Softmax(0)
    with pytest.raises(InvalidProblem, match="softmax of Mixed is no longer what patch put there"):
        report.undo()
    assert type(model.layers[1]) is nn.LayerNorm


def test_a_patched_model_learns_as_before():
    results = []
    for patched in (False, True):
        model, x = filled(Mixed()), rows(3, 8)
        if patched:
            patch(model)
        model(x).square().sum().backward()
        results.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for expected, actual in zip(*results, strict=True):
        assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_page_of_frameworks(capsys):
    """Its first program of torch runs as it stands."""
    page = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
    program = page.partition("## PyTorch")[2].partition("```python\n")[2].partition("```")[0]
    found: dict = {}
    exec(program, found)
    assert found["x"].grad.shape == (8, 512)
    assert torch.allclose(found["z"], 2 * torch.nn.functional.gelu(found["x"]), atol=1e-5)
    assert "LayerNorm  1      LayerNorm" in capsys.readouterr().out
