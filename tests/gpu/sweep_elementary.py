"""How far the functions in common steps are off: f32 over all 2^32 arguments on a GPU, f64 against mpmath on the CPU.

    python tests/gpu/sweep_elementary.py [--record] [NAME ...]
    python tests/gpu/sweep_elementary.py --f64 [--record] [NAME ...]
    python tests/gpu/sweep_elementary.py --halves

The functions are those of the intrinsics' table with `common`. In f32 the exact value is that of CUDA's own f64
library, whose errors are below 2^-20 units of f32; functions of two arguments are compared on a seeded grid. In f64,
which has too many arguments, the points are seeded: every exponent, and more where functions bend. CPU and GPU have
the same bits, so the CPU's finding holds for both. `--record` writes evidence/elementary-<gpu>.json, or
evidence/elementary-f64.json. `--halves` measures the forms that are as precise as f16 and bf16, over all arguments of
f32 too, as parts of what they are allowed, and counts steps back of what is stored.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path

import mpmath
import numpy as np

from skuda.codegen.intrinsics import COMMON_HEADER, HALF_BOUNDS, HALF_HEADERS, HALVED, INTRINSICS, Intrinsic
from skuda.reference import formulas
from skuda.verification.texts import header_digest

FOLDER = Path(__file__).parents[2] / "evidence"
COMMON = {name: row for name, row in INTRINSICS.items() if row.common and set(row.arguments) == {"r"} == {row.result}}
RISING = (
    "exp", "log", "erf", "ndtr", "sigmoid", "tanh", "cbrt", "exp2", "expm1", "log2", "log10", "log1p", "log1pexp",
    "logit", "asin", "atan", "sinh", "asinh", "acosh", "atanh", "erfinv",
)  # fmt: skip
FALLING = ("erfc", "rsqrt", "acos")  # rsqrt on either side of 0
MONOTONE = ("log", "erf", "erfc", "ndtr", "sigmoid", "tanh")  # these promise no step back; exp has some, of one unit
# Where functions bend, change their form or have a zero: more points lie around.
POINTS = (
    0.47, 0.65, 0.6640625, 0.8203125, 0.921875, 0.75179152469, 1, math.sqrt(0.5), 2, math.pi / 2, math.pi, 9, 20,
    27, 38,
)  # fmt: skip

# ---- what they are, in CUDA's f64 and in mpmath ----

CUDA = {name: f"{name}(x)" for name in COMMON} | {
    "sigmoid": "1.0 / (1.0 + exp(-x))",
    "log1pexp": "(x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x)))",
    "logit": "(x > 0.25 && x < 0.75 ? 2.0 * atanh(2.0 * x - 1.0) : log(x / (1.0 - x)))",
    "sinpi": "(fabs(x) < 0x1p200 && rint(x) == x ? rint(0.5 * x) == 0.5 * x ? 0.0 : -0.0 : sinpi(x))",
    "ndtr": "normcdf(x)",
    "gelu_slope": "slope_of_gelu(x)",
    "digamma": "slope_of_lgamma(x)",
    "pow": "pow(x, y)", "atan2": "atan2(x, y)", "hypot": "hypot(x, y)",
}  # fmt: skip


def _bounded(x, most: int):
    return max(min(x, most), -most)


EXACT: dict[str, Callable] = {
    **{name: getattr(mpmath, name) for name in (
        "exp", "log", "erf", "expm1", "log1p", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
        "tanh", "asinh", "acosh", "atanh", "atan2", "hypot", "erfinv", "sinpi", "cospi",
    )},
    "logit": lambda x: mpmath.log(x / (1 - x)) if 0 < x < 1 else mpmath.nan,
    "erfc": lambda x: mpmath.erfc(_bounded(x, 100)),
    "ndtr": lambda x: mpmath.ncdf(_bounded(x, 200)),
    "gelu_slope": lambda x: mpmath.ncdf(_bounded(x, 200)) + _bounded(x, 200) * mpmath.npdf(_bounded(x, 200)),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-_bounded(x, 2000))),
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "log1pexp": lambda x: mpmath.log1p(mpmath.exp(_bounded(x, 2000))) if x < 2000 else x,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power,
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "digamma": mpmath.digamma,
}  # fmt: skip


def series_of_slope(terms: int = 12) -> tuple[float, float, list[float]]:
    """The zero of gelu's derivative in two parts, and the Taylor coefficients there, from the first power on."""
    with mpmath.workdps(60):
        zero = mpmath.findroot(EXACT["gelu_slope"], -0.7518)
        high = float(zero)
        coefficients = mpmath.taylor(EXACT["gelu_slope"], zero, terms)[1:]
        return high, float(zero - high), [float(each) for each in coefficients]


# ---- f32 on a GPU ----

SOURCE = """
%(includes)s

// Next to its zero by its series: the sum of two terms would have lost what is left. Far below 0 it comes from below.
__device__ f64 slope_of_gelu(f64 x) {
  if (x < -38.0) return -0.0;
  if (isinf(x)) return x < 0.0 ? -0.0 : 1.0;
  const f64 d = (x - %(high)s) - %(low)s;
  if (fabs(d) < 0.015625) return d * %(series)s;
  return normcdf(x) + x * (exp(-0.5 * x * x) * 0.39894228040143267794);
}

// By steps to the right, where the asymptotic series holds, and the reflection; in f64, whose error is far below a unit
// of f32, but for a quarter of one next to zeros.
__device__ f64 slope_of_lgamma(f64 x) {
  if (x == 0.0) return -copysign(1.0 / 0.0, x);
  if (x < 0.0) {
    if (isinf(x) || rint(x) == x) return 0.0 / 0.0;
    return slope_of_lgamma(-x) - 1.0 / x + 3.14159265358979323846 * cospi(-x) / sinpi(-x);
  }
  f64 steps = 0.0;
  for (; x < 16.0; x += 1.0) steps += 1.0 / x;
  const f64 z = 1.0 / (x * x);
  f64 p = 1.0 / 12.0;
  p = 691.0 / 32760.0 - z * p;
  p = 1.0 / 132.0 - z * p;
  p = 1.0 / 240.0 - z * p;
  p = 1.0 / 252.0 - z * p;
  p = 1.0 / 120.0 - z * p;
  p = 1.0 / 12.0 - z * p;
  return log(x) - 0.5 / x - z * p - steps;
}

// All bit patterns in the order of what they stand for, NaN last.
__device__ f32 argument_at(u32 i) {
  const u32 count = 0x7f800001u;
  if (i < count) return __uint_as_float(0x80000000u | (count - 1 - i));
  if (i - count < count) return __uint_as_float(i - count);
  const u32 nan = i - 2 * count;
  return __uint_as_float((nan & 1 ? 0xff800001u : 0x7f800001u) + nan / 2);
}

// Units in the last place between a result and the exact value; -1 where one is special and the other not the same.
__device__ f64 distance(f32 ours, f64 exact) {
  if (exact != exact) return ours != ours ? 0.0 : -1.0;
  if (ours != ours) return -1.0;
  if (exact == 0.0) return ours == 0.0f && (1.0f / ours > 0.0f) == (1.0 / exact > 0.0) ? 0.0 : -1.0;
  if (isinf(exact)) return f64(ours) == exact ? 0.0 : -1.0;
  const f64 unit = ldexp(1.0, max(ilogb(exact) - 23, -149)), end = 0x1p128;
  const f64 near = isinf(ours) ? copysign(end, f64(ours)) : f64(ours), far = fmax(fmin(exact, end), -end);
  return fabs(near - far) / fmin(unit, 0x1p104);
}

// The same as a part of what a function that is as precise as a half type may be off by.
__device__ f64 part(f32 ours, f64 exact, f64 bound, f64 left) {
  if (exact != exact || ours != ours || exact == 0.0) return distance(ours, exact);
  const f64 end = 0x1p128, near = isinf(ours) ? copysign(end, f64(ours)) : f64(ours);
  const f64 far = fmax(fmin(exact, end), -end);
  return fabs(near - far) / (fmax(fabs(far) * bound, left) + 0x1p-147);
}

struct Found { u64 worst, steps_down, wrong; };

__device__ void note(Found* found, f64 distance, u32 position) {
  if (distance < 0.0) atomicAdd(&found->wrong, 1ull);
  else atomicMax(&found->worst, u64(__float_as_uint(__double2float_ru(distance))) << 32 | position);
}

%(kernels)s
"""

ONE = """
extern "C" __global__ void sweep_%(name)s(Found* found) {
  const u32 from = (blockIdx.x * 256 + threadIdx.x) * 1024u;
  f32 last = argument_at(from ? from - 1 : 0), before = %(ours_last)s;
  f64 worst = 0.0;
  u32 position = 0;
  for (u32 i = from; i < from + 1024u || (from + 1024u == 0 && i >= from); ++i) {
    const f32 a = argument_at(i);
    const f32 value = %(ours)s;
    const f64 x = a, off = %(measure)s(value, %(exact)s%(allowed)s);
    if (off < 0.0) note(found, off, i);
    if (off > worst) worst = off, position = __float_as_uint(a);
    const bool one_side = __float_as_uint(a) >> 31 == __float_as_uint(last) >> 31;
    const f64 risen = f64(%(stored)s(value)) - f64(%(stored)s(before));
    if (one_side && %(direction)s * risen < 0.0) atomicAdd(&found->steps_down, 1ull);
    last = a, before = value;
    if (i == 0xffffffffu) break;
  }
  note(found, worst, position);
}
"""

TWO = """
extern "C" __global__ void sweep_%(name)s(Found* found, const f32* first, const f32* second, u32 count) {
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const f32 a = %(argument)s(first[i]), b = %(argument)s(second[i]);
  const f64 x = a, y = b;
  note(found, %(measure)s(%(ours)s, %(exact)s%(allowed)s), i);
}
"""


def direction(name: str) -> int:
    """1 for a function that rises wherever it is defined, -1 for one that falls, else 0."""
    return (name in RISING) - (name in FALLING)


def source(rows: dict[str, Intrinsic], halves: Sequence[tuple[str, str]] = ()) -> str:
    """The CUDA text of the sweep over f32; `halves`: functions as precise as half types, with these."""
    high, low, series = series_of_slope()
    horner = f"({series[-1].hex()})"
    for each in series[-2::-1]:
        horner = f"({horner} * d + {each.hex()})"
    kernels = [
        (ONE if row.arguments == "r" else TWO)
        % {
            "name": name,
            "ours": row.cuda.format("a", "b"),
            "ours_last": row.cuda.format("last", "last"),
            "exact": CUDA[name],
            "direction": direction(name),
            "measure": "distance",
            "allowed": "",
            "stored": "",
            "argument": "",
        }
        for name, row in rows.items()
    ]
    kernels += [
        (ONE if INTRINSICS[name].arguments == "r" else TWO)
        % {
            "name": f"{name}_{word}",
            "ours": INTRINSICS[name].spelled("cuda", word).format("a", "b"),
            "ours_last": INTRINSICS[name].spelled("cuda", word).format("last", "last"),
            "exact": CUDA[name],
            "direction": direction(name),
            "measure": "part",
            "allowed": f", {2.0 ** HALF_BOUNDS[word]}, {HALF_LEFT.get((name, word), 0.0)}",
            "stored": f"stored<{word}>",
            "argument": f"stored<{word}>",
        }
        for name, word in halves
    ]
    headers = dict.fromkeys([COMMON_HEADER, *(row.header for row in rows.values() if row.header)])
    headers |= dict.fromkeys(HALF_HEADERS.values() if halves else ())
    return SOURCE % {
        "includes": "\n".join(f'#include "{header}"' for header in headers),
        "high": f"({high.hex()})", "low": f"({low.hex()})", "series": horner, "kernels": "\n".join(kernels),
    }  # fmt: skip


HALVES = tuple((name, word) for name in sorted(HALVED) for word in HALF_BOUNDS)
# Where f16 stores 0 of their products with x.
HALF_LEFT = {("ndtr", "f16"): 2.0**-39, ("gelu_slope", "f16"): 2.0**-39, ("erfc", "f16"): 2.0**-38}


def sweep_halves() -> dict[tuple[str, str], tuple[float, float | tuple[float, ...], int, int]]:
    """Of each function and half type: the largest part of what is allowed, where, steps back of what is stored, and
    unlike special values. Functions of two arguments are compared on the grid, whose numbers are rounded to the
    type."""
    import cupy

    from skuda.launch.compiler import compile_cubin

    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    module = cupy.cuda.function.Module()
    names = entries("_".join(each) for each in HALVES)
    module.load(compile_cubin(source({}, HALVES), "sweep_halves.cu", names, arch).cubin)
    grid, result = None, {}
    for name, word in HALVES:
        found = cupy.zeros(3, cupy.uint64)
        kernel, of_two = module.get_function(f"sweep_{name}_{word}"), INTRINSICS[name].arguments == "rr"
        if of_two:
            grid = grid or [cupy.asarray(each) for each in pairs()]
            kernel((-(-grid[0].size // 256),), (256,), (found, *grid, np.uint32(grid[0].size)))
        else:
            kernel(((1 << 32) // 1024 // 256,), (256,), (found,))
        worst, steps, wrong = (int(each) for each in found.get())
        part, at = np.array([worst >> 32, worst & 0xFFFFFFFF], np.uint32).view(np.float32).tolist()
        if of_two:
            at = tuple(float(each[worst & 0xFFFFFFFF].get()) for each in grid)
        result[name, word] = part, at, steps, wrong
    return result


def entries(rows: Iterable[str]) -> list[str]:
    """The kernels of `source`."""
    return [f"sweep_{name}" for name in rows]


def pairs(count: int = 1 << 24) -> tuple[np.ndarray, np.ndarray]:
    """Seeded pairs of arguments: all pairs of special ones, all exponents, and usual sizes."""
    rng = np.random.default_rng(11)
    info = np.finfo(np.float32)
    few = [0, info.smallest_subnormal, info.tiny, 0.5, 1, 1.5, 2, 3, 1e10, info.max, np.inf]
    few = np.array([*few, *np.negative(few), np.nan], np.float32)
    special = np.meshgrid(few, few)
    found = []
    for each in special:
        spread = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
        usual = (rng.normal(0, 4, count) * np.exp2(rng.integers(-3, 4, count))).astype(np.float32)
        found.append(np.concatenate([each.reshape(-1), spread, usual]))
    return found[0], found[1]


def sweep_f32(rows: dict[str, Intrinsic]) -> dict[str, dict]:
    """What the GPU finds of each function, as the record has it."""
    import cupy

    from skuda.launch.compiler import compile_cubin

    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    module = cupy.cuda.function.Module()
    module.load(compile_cubin(source(rows), "sweep_elementary.cu", entries(rows), arch).cubin)
    grid = None
    result = {}
    for name, row in rows.items():
        found = cupy.zeros(3, cupy.uint64)
        kernel = module.get_function(f"sweep_{name}")
        if row.arguments == "r":
            count = 1 << 32
            kernel((count // 1024 // 256,), (256,), (found,))
        else:
            grid = grid or [cupy.asarray(each) for each in pairs()]
            count = grid[0].size
            kernel((-(-count // 256),), (256,), (found, *grid, np.uint32(count)))
        worst, steps, wrong = (int(each) for each in found.get())
        position = worst & 0xFFFFFFFF
        arguments = (
            [np.uint32(position).view(np.float32)] if row.arguments == "r" else [each[position].get() for each in grid]
        )
        result[name] = {
            "arguments": count,
            "worst_ulp": float(np.uint32(worst >> 32).view(np.float32)),
            "at": " ".join(float(each).hex() for each in arguments),
            "steps_down": steps if direction(name) else None,
            "wrong": wrong,
            "digest": header_digest(row.header or COMMON_HEADER),
        }
    return result


# ---- f64 on the CPU ----


def zeros_below_0(name: str) -> np.ndarray:
    """The values next to the zeros of lgamma, or to some of digamma's."""
    slope = mpmath.digamma if name == "lgamma" else lambda x: mpmath.polygamma(1, x)
    with mpmath.workprec(160):
        if name == "lgamma":  # on either side of -n, |gamma| is 1 about 1 / n! away
            starts = [mpmath.mpf("-2.457"), mpmath.mpf("-2.7476"), mpmath.mpf("-3.1436"), mpmath.mpf("-3.9553")]
            for n in range(4, 18):
                starts += [-n + sign / mpmath.factorial(n) for sign in ((1, -1) if n > 4 else (-1,))]
        else:
            whole = [*range(1, 20), *(2**k + 1 for k in range(5, 12))]
            turns = [mpmath.acot(mpmath.log(n + 1.5) / mpmath.pi) / mpmath.pi for n in whole]
            starts = [mpmath.mpf("-0.504"), *(turn - n - 1 for n, turn in zip(whole, turns, strict=True))]
        for _ in range(8):
            starts = [x - EXACT[name](x) / slope(x) for x in starts]
        return np.array([float(x) for x in starts])


def beside_zeros(name: str, count: int) -> np.ndarray:
    """Seeded arguments at all distances from zeros below 0, and the nearest ones; none of other functions."""
    if name not in ("lgamma", "digamma"):
        return np.empty(0)
    rng, zeros = np.random.default_rng(14), zeros_below_0(name)
    apart = rng.choice([-1, 1], count) * np.exp2(-rng.uniform(1, 50, count))
    nearest = zeros[:, None] + np.arange(-2, 3) * np.spacing(np.abs(zeros))[:, None]
    return np.concatenate([rng.choice(zeros, count) + apart, nearest.reshape(-1)])


def points_f64(count: int) -> np.ndarray:
    """Seeded arguments of one function: every exponent, usual sizes, and dense around `POINTS`."""
    rng = np.random.default_rng(12)
    share = count // 8
    near = np.array(POINTS)[rng.integers(0, len(POINTS), 2 * share)] * (1 + rng.normal(0, 1e-2, 2 * share))
    return np.concatenate([
        rng.choice([-1, 1], share) * np.exp2(rng.uniform(-1074, 1024, share)), rng.normal(0, 1, share),
        rng.uniform(-6, 6, share), rng.uniform(-40, 40, share), rng.uniform(-750, 712, share),
        rng.choice([-1, 1], share) * np.exp2(rng.uniform(-60, 6, share)), rng.choice([-1, 1], 2 * share) * near,
    ])  # fmt: skip


def sweep_f64(rows: dict[str, Intrinsic], count: int = 80_000) -> dict[str, dict]:
    """What the CPU finds of each function, as the record has it."""
    result = {}
    for name, row in rows.items():
        arguments = [np.concatenate([points_f64(count), beside_zeros(name, count // 8)])]
        if row.arguments == "rr":
            arguments.append(np.random.default_rng(13).permutation(arguments[0]))
        worst, position = worst_f64(name, arguments)
        result[name] = {
            "arguments": len(arguments[0]),
            "worst_ulp": worst,
            "at": " ".join(float(each[position]).hex() for each in arguments),
            "steps_down": steps_f64(name) if direction(name) and row.arguments == "r" else None,
            "wrong": None,
            "digest": header_digest(row.header or COMMON_HEADER),
        }
    return result


def computed(name: str, *arguments: np.ndarray) -> np.ndarray:
    """What the reference gives."""
    names = dict(zip("xy", arguments, strict=False))
    with np.errstate(all="ignore"):
        known = {**vars(formulas), name: getattr(formulas, name), "np": np, **names}
        return eval(INTRINSICS[name].numpy.format("x", "y"), known)


def distance_f64(name: str, got: float, *arguments: float) -> float | None:
    """Units in the last place from the exact value; None where that is none or out of range."""
    with mpmath.workprec(160):
        try:
            exact = EXACT[name](*map(mpmath.mpf, arguments))
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        if not isinstance(exact, mpmath.mpf) or not mpmath.isfinite(exact) or abs(exact) >= mpmath.mpf(2) ** 1024:
            return None
        exponent = int(mpmath.frexp(exact)[1]) if exact else -2000
        near = mpmath.sign(exact) * mpmath.mpf(2) ** 1024 if math.isinf(got) else mpmath.mpf(got)
        return float(abs(exact - near) / mpmath.ldexp(1, max(exponent - 53, -1074)))


def worst_f64(name: str, arguments: list[np.ndarray]) -> tuple[float, int]:
    """The largest distance, and where it is; NaN is infinitely far off."""
    got = computed(name, *arguments)
    worst, position = 0.0, 0
    for i, (value, *given) in enumerate(zip(got.tolist(), *(each.tolist() for each in arguments), strict=True)):
        off = distance_f64(name, value, *given)
        if off is not None and not off <= worst:
            worst, position = off if off == off else math.inf, i
    return worst, position


def steps_f64(name: str) -> int:
    """Steps back over runs of 64 neighbours."""
    starts = np.abs(points_f64(16_000)).view(np.int64)[:, None]
    x = (starts + np.arange(64)).view(np.float64)
    x = x[np.isfinite(x).all(1)]
    return sum(int((direction(name) * np.diff(computed(name, each)) < 0).sum()) for each in (x, -x[:, ::-1]))


# ---- the record ----


def write(name: str, where: str, word: str, found: dict[str, dict]) -> Path:
    """Merges what was found into the record of where it ran; what that says of other functions stays."""
    path = FOLDER / f"elementary-{name}.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"functions": {}}
    functions = record["functions"] | {each: {word: said} for each, said in found.items()}
    record = {
        "where": where,
        "date": date.today().isoformat(),
        **_driver(),
        "functions": dict(sorted(functions.items())),
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def _driver() -> dict[str, str]:
    from skuda.codegen.commands import gpus

    found = gpus.find()
    return {"driver": found.driver, "cuda": found.cuda} if found.devices else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *COMMON], default=[])
    parser.add_argument("--f64", action="store_true", help="f64 against mpmath on the CPU, in a few minutes")
    parser.add_argument("--record", action="store_true", help="write what was found into evidence/")
    parser.add_argument("--halves", action="store_true", help="the forms that are as precise as f16 and bf16")
    args = parser.parse_args()
    if args.halves:
        halves = sweep_halves()
        for (name, word), (part, at, steps, wrong) in halves.items():
            print(f"{name:12}{word:5}{part:.4f} of what is allowed, at {at!r}; {steps} steps back, {wrong} unlike")
        return int(any(part > 1 or wrong for part, _, _, wrong in halves.values()))
    rows = {name: row for name, row in COMMON.items() if not args.names or name in args.names}
    word = "f64" if args.f64 else "f32"
    found = sweep_f64(rows) if args.f64 else sweep_f32(rows)
    broken = 0
    for name, each in found.items():
        promised = INTRINSICS[name].ulp[args.f64]
        bad = each["worst_ulp"] > promised or (name in MONOTONE and each["steps_down"]) or each["wrong"]
        broken += bool(bad)
        print(
            f"{name:12}{word} {each['worst_ulp']:.4f} at {each['at']} of {each['arguments']}, promised {promised:g}; "
            f"{each['steps_down']} steps back, {each['wrong']} unlike special values{'  <--' if bad else ''}"
        )
    if args.record:
        if args.f64:
            print(write("f64", "CPU", word, found))
        else:
            from skuda.codegen.commands import gpus

            gpu = gpus.find().devices[0][0]
            print(write("-".join(gpu.lower().split()), gpu, word, found))
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
