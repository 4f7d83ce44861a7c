"""Single lines that matter, what each becomes in a mutation run (tests/mutate.py), and the tests that must notice it.

To add a mutation, add a row: where, what becomes what, the tests as arguments of pytest, and what goes wrong.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One changed line.

    Attributes:
        file: where, from the root of the project.
        before, after: a text that occurs there once, and what takes its place: they differ in one line, and may begin
            in that before it.
        tests: arguments of pytest: what must notice it.
        title: what goes wrong.
        generate: whether the catalog follows from the line.
    """

    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    title: str
    generate: bool = False


def moves(*names: str) -> tuple[str, ...]:
    """Kernels that are run on the CPU, one each: tests/host/test_moves_on_the_host.py."""
    return tuple(f"tests/host/test_moves_on_the_host.py::test_move[{name}]" for name in names)


def cells(*names: str) -> tuple[str, ...]:
    """CUDA cells of intrinsics that are run on the CPU."""
    return "tests/codegen/test_intrinsics_on_the_host.py", "-k", " or ".join(f"{name}-" for name in names)


def where(file: str, *names: str) -> tuple[str, ...]:
    """Tests of a file, or those whose names have one of these in them."""
    return (file, "-k", " or ".join(names)) if names else (file,)


CUDA = "runtime/cuda/"
HOST = "tests/host/test_kernels_on_the_host.py"
CONFORMANCE = "tests/conformance/"
RUNTIME = "tests/runtime/"

MUTATIONS = (
    # ---- the table ----
    Mutation(
        "ops.yaml",
        "clamp(round_to_int(x / scale), q_min - zero_point, q_max - zero_point)",
        "clamp(round_to_int(x / scale), q_min - zero_point, q_max)",
        where(CONFORMANCE + "test_quantize_random.py"),
        "codes are cut without the zero point", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "<= round_to_int(x / scale) <= q_max - zero_point",
        "<= round_to_int(x / scale) < q_max - zero_point",
        where(CONFORMANCE + "test_semantics.py"),
        "the mask of the gradient leaves out its bound", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "dequantize(q, scale, zero_point): (q - zero_point) * scale",
        "dequantize(q, scale, zero_point): q * scale - zero_point * scale",
        where(CONFORMANCE + "test_dequantize.py"),
        "dequantization rounds three times", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "in_fp8_range(x, scale, q_max): abs(x / scale) <= q_max",
        "in_fp8_range(x, scale, q_max): abs(x / scale) < q_max",
        where(CONFORMANCE + "test_fp8.py"),
        "the mask of fp8 leaves out its bound", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "state + c * (seen - state)",
        "state + c * seen - c * state",
        where(CONFORMANCE + "test_observers.py"),
        "a moving average is rounded in other steps", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "where(high == low, 1, fmax(high / levels - low / levels, least))",
        "where(high == low, 1, fmax((high - low) / levels, least))",
        where(CONFORMANCE + "test_rows.py", "asymmetric"),
        "an asymmetric scale overflows", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "where(norm < eps,",
        "where(norm <= eps,",
        where(CONFORMANCE + "test_gradients.py", "eps"),
        "the gradient of l2_normalize where the norm is eps", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "how_many(condition, d): sum(where(condition, 1.0, 0.0), over=d)",
        "how_many(condition, d): sum(where(condition, 1.0, 1.0), over=d)",
        where(CONFORMANCE + "test_gradients.py", "ties"),
        "the gradient of amax is not shared among equals", generate=True,
    ),
    Mutation(
        "ops.yaml",
        "output: T[*n, *d] = shifted - log(sum(exp(shifted), over=d))",
        "output: T[*n, *d] = log(exp(shifted) / sum(exp(shifted), over=d))",
        where(CONFORMANCE + "test_rows.py", "log_softmax"),
        "log_softmax loses what softmax rounds to 0", generate=True,
    ),
    # ---- the generator ----
    Mutation(
        "codegen/printers.py",
        "{self.text(right, own + 1)}",
        "{self.text(right, own)}",
        where("tests/codegen/test_printers.py"),
        "a - (b - c) loses its parentheses",
    ),
    Mutation(
        "codegen/printers.py",
        'return f"C({self.constants.get(node.text, node.text)})" if node.kind == REAL else node.text',
        "return self.constants.get(node.text, node.text)",
        where("tests/codegen/test_lowering.py"),
        "numbers are not of the compute type",
    ),
    Mutation(
        "codegen/lowering.py",
        "and node.bits > pattern.bits",
        "and node.bits > 64",
        where("tests/codegen/test_lowering.py"),
        "a difference of wide codes takes the way of narrow ones",
    ),
    Mutation(
        "codegen/expr_checks.py",
        "        if bits > 64:",
        "        if bits > 65:",
        where("tests/codegen/test_printers.py"),
        "an integer of 65 bits is let through",
    ),
    Mutation(
        "codegen/expr.py",
        "bits = max(typed[1].bits, typed[2].bits)",
        "bits = min(typed[1].bits, typed[2].bits)",
        where("tests/codegen/test_spec.py"),
        "a clamped integer is taken for narrower than it is",
    ),
    Mutation(
        "codegen/intrinsics.py",
        "    \"max\": (\"where(a > b, g, 0)\", \"where(b > a, g, 0)\"),",
        "    \"max\": (\"where(a >= b, g, 0)\", \"where(b > a, g, 0)\"),",
        (*where("tests/codegen/test_derived_gradients.py"), "-k", "kinks"),
        "the derived gradient of relu is 1 at 0",
    ),
    Mutation(
        "codegen/derivatives.py",
        "                factor = Term(1, {counted(block or self.spelled(rest)): 1})",
        "                factor = Term()",
        (*where("tests/codegen/test_derived_gradients.py"), "-k", "counted"),
        "a gradient that is the same for all elements is not counted once for each",
    ),
    Mutation(
        "codegen/inputs.py",
        'found.update(name.encode() + b"\\0" + path.read_bytes())',
        "found.update(name.encode())",
        where("tests/codegen/test_inputs.py"),
        "a changed generator is not noticed",
    ),
    # ---- templates ----
    Mutation(
        "templates/elementwise_program.cu.jinja",
        "bool fast() const { return ${k.members | all_fast}; }",
        "bool fast() const { return true; }",
        moves("vectors", "groups", "columns"),
        "unusual scales take the fast form", generate=True,
    ),
    # ---- headers: elementwise schedules ----
    Mutation(
        CUDA + "broadcast.cuh",
        "lanes.data[lane] = lane < left ? first : second;",
        "lanes.data[lane] = first;",
        moves("inputs that broadcast"),
        "a value of one row serves the next row's elements in a vector",
    ),
    Mutation(
        CUDA + "broadcast.cuh",
        "if (++at.of[LAST] == width) offset",
        "if (++at.of[LAST] == width + 1) offset",
        moves("few inputs that broadcast"),
        "rows end one element late",
    ),
    Mutation(
        CUDA + "broadcast.cuh",
        "if (i32(steps.flat) && aligned) return",
        "if (aligned) return",
        moves("inputs that broadcast"),
        "inputs that broadcast are read as if they lay as outputs do",
    ),
    Mutation(
        CUDA + "broadcast.cuh",
        "if (first >= 0 && first + LANES <= length) {",
        "if (first >= 0) {",
        moves("inputs that broadcast"),
        "a vector is stored beyond the last element",
    ),
    Mutation(
        "runtime/cpu/elementwise.h",
        "|| get<i>(lines).step == 0) && ... && true); }",
        "|| get<i>(lines).step != 1) && ... && true); }",
        where("tests/cpu/test_kernels_on_the_cpu.py", "every_second"),
        "lines with gaps are computed where they do not lie",
    ),
    Mutation(
        "runtime/cpu/blocks.h",
        "halves = (halves & 0x7fff) > 0x7c00 ?",
        "halves = (halves & 0x7fff) > 0x7fff ?",
        where("tests/cpu/test_kernels_on_the_cpu.py", "one_by_one"),
        "NaN of f16 keep what they were of",
    ),
    Mutation(
        CUDA + "vec.cuh",
        "const i32 low = are_shifted(LAYOUT) ? MARGIN : 0;",
        "const i32 low = 0;",
        moves("shifted vectors"),
        "shifted vectors are read before the first element",
    ),
    Mutation(
        CUDA + "vec.cuh",
        "? length - LANES - MARGIN :",
        "? length - LANES :",
        moves("shifted vectors"),
        "shifted vectors are read after the last element",
    ),
    Mutation(
        CUDA + "groups.cuh",
        "::max(::min(start, length - STRETCH - MARGIN), MARGIN)",
        "::max(::min(start, length - STRETCH), MARGIN)",
        moves("groups"),
        "a warp's stretch is read after the end",
    ),
    Mutation(
        CUDA + "tile.cuh",
        "const i32 last = ::min(first + SHARE, at.length);",
        "const i32 last = first + SHARE;",
        moves("a tile with packed pairs", "a tile"),
        "a tile is filled beyond its end",
    ),
    # ---- headers: sums and rows ----
    Mutation(
        CUDA + "reduce.cuh",
        "% 32 * WARPS + warp] = value;",
        "% 32 + warp] = value;",
        moves("two accumulators a thread, of several warps", "two accumulators a thread, normalized"),
        "partial results of two accumulators a thread lie on each other",
    ),
    Mutation(
        CUDA + "reduce.cuh",
        "return chunks > 4 && threads < ACCUMULATORS ? 2 : 1;",
        "return 1;",
        where(HOST, "order_of_a_sum"),
        "the order of a sum, where threads have two accumulators",
    ),
    Mutation(
        CUDA + "reductions.cuh",
        "V nothing() { return V(-0.0); }",
        "V nothing() { return V(0.0); }",
        where(HOST, "sign_of_zero and sum"),
        "a sum of -0 is 0",
    ),
    Mutation(
        CUDA + "reductions.cuh",
        "return (a < b) | ((a == b) & (__double_as_longlong(a) < 0)) | is_nan(a) ? a : b;",
        "return (a < b) | ((a == b) & (__double_as_longlong(b) < 0)) | is_nan(a) ? a : b;",
        where(HOST, "sign_of_zero and amin"),
        "the smallest of both zeros in f64",
    ),
    Mutation(
        CUDA + "reductions.cuh",
        "(a.index < b.index ? a : b)",
        "(a.index < b.index ? b : a)",
        where(HOST, "index_among_equals and argmax"),
        "the last of equals",
    ),
    Mutation(
        CUDA + "reductions.cuh",
        "values[i] = i < count ? values[i] : How::template nothing<V>();",
        "values[i] = i <= count ? values[i] : How::template nothing<V>();",
        moves("rows of a warp, misaligned", "long rows, misaligned"),
        "a short group has one element too many",
    ),
    Mutation(
        CUDA + "reductions.cuh",
        "even = of(even, word << 8);",
        "even = of(even, word);",
        moves("extremes of bytes"),
        "two of four bytes are compared twice",
    ),
    Mutation(
        CUDA + "split_moves.cuh",
        "lanes[i].data[lane] = at[i][columns.step(lane)];",
        "lanes[i].data[lane] = at[i][columns.step(lane & 2)];",
        moves("splits with indices"),
        "beside a table's edge a column is taken for its neighbour",
    ),
    Mutation(
        CUDA + "cluster.cuh",
        "next + (teams - 1) * SEGMENT_CHUNKS",
        "next + teams * SEGMENT_CHUNKS",
        moves("sixteen blocks and weights"),
        "a team goes on with a segment too far away",
    ),
    Mutation(
        CUDA + "copies.cuh",
        "if (first + i * 32 < length) copy_async<UNIT>(",
        "if (first + i * 32 <= length) copy_async<UNIT>(",
        moves("eight blocks, misaligned", "sixteen blocks, misaligned"),
        "one element beyond a misaligned row is copied",
    ),
    Mutation(
        CUDA + "copies.cuh",
        "(i * apart >> 3 & (WORDS - 1)) * 16",
        "(i * apart >> 4 & (WORDS - 1)) * 16",
        moves("eight blocks, misaligned", "sixteen blocks, misaligned"),
        "units of a misaligned row lie where other ones are read",
    ),
    Mutation(
        CUDA + "row_moves.cuh",
        "const i32 first = (chunk * THREADS + thread - lane) * GROUP + lane;",
        "const i32 first = (chunk * THREADS + thread - lane) * GROUP + (lane ^ 1);",
        moves("rows by way of shared memory", "rows and columns by way of shared memory"),
        "lanes copy each other's elements",
    ),
    Mutation(
        CUDA + "cluster.cuh",
        "if (MODE != WHOLE && count < GROUP) cut<How>(group, count);",
        "if (MODE != WHOLE && count < GROUP / 2) cut<How>(group, count);",
        moves("eight blocks, misaligned", "eight blocks, misaligned half types"),
        "a reduction takes an element that the row does not have",
    ),
    Mutation(
        CUDA + "cluster_row.cuh",
        "stretches + threadIdx.x / 32 * apart",
        "stretches + threadIdx.x / 64 * apart",
        moves("eight blocks, misaligned", "sixteen blocks, misaligned"),
        "two warps put their outputs into one stretch",
    ),
    Mutation(
        CUDA + "cluster.cuh",
        "chunks = (shares - index + ACCUMULATORS - 1) / ACCUMULATORS;",
        "chunks = (shares - index) / ACCUMULATORS;",
        moves("sixteen blocks", "eight blocks"),
        "the last chunk of a row is left out",
    ),
    Mutation(
        CUDA + "split_joins.cuh",
        "accumulators[0] = P::of(accumulators[0], scratch[turn + threadIdx.x]);",
        "accumulators[0] = P::of(scratch[turn + threadIdx.x], P::nothing());",
        moves("splits along", "splits along, misaligned"),
        "of several turns of accumulators only the last one counts",
    ),
    Mutation(
        CUDA + "log_sum_exp.cuh",
        "return near_0(group.largest) & (near_0(before.largest) | (before.sum == V(0)));",
        "return near_0(before.largest) | (before.sum == V(0));",
        moves("sums of exponentials across"),
        "exponentials of elements that are far from 0 are taken as they are",
    ),
    Mutation(
        CUDA + "log_sum_exp.cuh",
        "powers[i] = power(group[i] - anchor(largest));",
        "powers[i] = power(group[i] - anchor(group[i]));",
        moves("sums of exponentials along"),
        "elements that are far from 0 have an anchor each",
    ),
    Mutation(
        CUDA + "log_sum_exp.cuh",
        "b_sum * power(anchor(b) - to)};",
        "b_sum};",
        moves("sums of exponentials along"),
        "sums of different anchors are added as they are",
    ),
    Mutation(
        CUDA + "reduce.cuh",
        "accumulator.largest = other.largest = largest;",
        "accumulator.largest = largest;",
        moves("sums of exponentials in a row"),
        "of the odd chunks of a row the largest element is lost",
    ),
    Mutation(
        CUDA + "scan_log.cuh",
        "other = rises ? first.more : later.more;",
        "other = rises ? later.more : first.more;",
        moves("a scan of pairs along rows"),
        "the sum of the larger element counts twice",
    ),
    Mutation(
        CUDA + "scan_log.cuh",
        "return x < -87.0f ? -0.0f : power;",
        "return power;",
        moves("a scan of pairs along rows"),
        "what is next to nothing is added as what it is not",
    ),
    Mutation(
        CUDA + "row.cuh",
        "    return made.values;",
        "    return Values{};",
        moves("random numbers apart"),
        "random numbers that are made out of line are lost",
    ),
    Mutation(
        CUDA + "split_moves.cuh",
        "return at.table * strides.of[AXES - 2] + beside;",
        "return beside;",
        moves("splits across tables"),
        "all tables write the results of the first one",
    ),
    Mutation(
        CUDA + "split_across.cuh",
        "if constexpr (IN_TURN) load(turn, first + TURNS * apart);",
        "if constexpr (IN_TURN) load(turn, first + apart);",
        moves("moments across, a group while others come"),
        "a group is loaded twice and the one after it never",
    ),
    Mutation(
        CUDA + "split_group.cuh",
        "found[lane].count = typename P::C(exist);",
        "found[lane].count = typename P::C(GROUP);",
        moves("moments across"),
        "the last rows count as eight",
    ),
    Mutation(
        CUDA + "row.cuh",
        "if (JOINED ? !TOGETHER && THREADS >= 32 &&",
        "if (JOINED ? !TOGETHER && SHARES == 1 &&",
        moves("a group to a thread"),
        "threads of short rows wait for those that have left",
    ),
    Mutation(
        CUDA + "random.cuh",
        "return __umulhi(u32(random_bits(seed, offset, index)), size);",
        "return __umulhi(u32(random_bits(seed, offset, index)), size + 1);",
        where("tests/host/test_random_on_the_host.py", "portions"),
        "a random integer may be the one that is left out",
    ),
    Mutation(
        CUDA + "split_across.cuh",
        "scratch + i32(threadIdx.x >> split.team) * warps * width;",
        "scratch;",
        moves("splits across"),
        "teams of a block all have the results of the first one",
    ),
    Mutation(
        CUDA + "stripe.cuh",
        "of_blocks[block * columns +",
        "of_blocks[(block + 1) % BLOCKS * columns +",
        moves("a stripe that a cluster holds"),
        "what blocks of a stripe have found is joined with other neighbours",
    ),
    Mutation(
        CUDA + "stripe.cuh",
        "if (__builtin_expect(exist < GROUP, 0)) cut<How>(states, exist);",
        "",
        moves("a stripe that a cluster holds"),
        "the last elements of a stripe count more than once",
    ),
    Mutation(
        CUDA + "stripe.cuh",
        "return turn * apart + accumulator * GROUP; }",
        "return (turn + accumulator * turns) * GROUP; }",
        moves("a stripe that a cluster holds"),
        "a thread of a stripe takes groups that follow each other",
    ),
    Mutation(
        CUDA + "split_joins.cuh",
        "const bool none = i32(found.index >> 32) == 0x7fffffff;",
        "const bool none = false;",
        where(HOST, "index_among_equals"),
        "a column of -inf has no first index",
    ),
    # ---- headers: moves ----
    Mutation(
        CUDA + "lanes.cuh",
        "(low & 0x0f0f0f0fu) | (high << 4 & 0xf0f0f0f0u)",
        "(high & 0x0f0f0f0fu) | (low << 4 & 0xf0f0f0f0u)",
        moves("vectors"),
        "the first nibble is the high one where vectors are packed",
    ),
    Mutation(
        CUDA + "lanes.cuh",
        "return high ? byte >> 4 : byte & 15;",
        "return high ? byte & 15 : byte >> 4;",
        moves("any strides, packed"),
        "the first nibble is the high one where elements are read alone",
    ),
    Mutation(
        CUDA + "index_space.cuh",
        "return i32(__umulhi(u32(narrow), u32(n) << 1) >> (u32(shift) & 31));",
        "return i32(__umulhi(u32(narrow), (u32(n) << 1) - 1) >> (u32(shift) & 31));",
        moves("shares of rows", "any strides, packed", "columns", "a tile"),
        "a division by a constant is one too much",
    ),
    Mutation(
        CUDA + "index_space.cuh",
        "at.count = i32(length) - last * LANES;",
        "at.count = LANES;",
        moves("shares of rows"),
        "the last share of a row is not cut",
    ),
    Mutation(
        CUDA + "shift.cuh",
        "if (2 * i + 1 == count) lanes.data[i] &= 15;",
        "if (2 * i + 1 == count) lanes.data[i] &= 255;",
        moves("shares of rows", "columns, misaligned"),
        "the nibble that pads an odd row is not 0",
    ),
    Mutation(
        CUDA + "shift.cuh",
        "const i32 more = followed ? 0 : skip + bytes - width;",
        "const i32 more = 0;",
        moves("shares of rows", "columns, misaligned"),
        "the end of a misaligned row is not written",
    ),
    Mutation(
        CUDA + "tile.cuh",
        "to = corner<E>(array, tiles, position, outer, steps);\n  const i32 units = (position.length + T::pair - 1)",
        "to = corner<E>(array, tiles, position, outer, steps);\n  const i32 units = position.length",
        moves("a tile with packed pairs"),
        "the odd end of packed lines is not written",
    ),
    Mutation(
        CUDA + "tile.cuh",
        "(along & 1) == 0, value)",
        "false, value)",
        moves("a tile with packed pairs"),
        "the nibble that pads an odd line is what was there",
    ),
    Mutation(
        CUDA + "columns.cuh",
        "(column < at.width ? 0 : at.width)",
        "0",
        moves("columns"),
        "the columns after the last are read beyond the table",
    ),
    Mutation(
        CUDA + "columns.cuh",
        "at.column + lane < at.width ? first[row] : last[row]",
        "first[row]",
        moves("columns and rows"),
        "what ends in a table's next row has the entries of this one",
    ),
    # ---- headers: numbers ----
    Mutation(
        CUDA + "small_floats.cuh",
        'asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));',
        'asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(low), "f"(high));',
        moves("pairs to e4m3"),
        "the elements of a pair are swapped",
    ),
    Mutation(
        CUDA + "small_floats.cuh",
        "(1u << (lost - 1)) - 1 + (bits >> lost & 1)",
        "(1u << (lost - 1))",
        ("tests/host/test_moves_on_the_host.py", "-k", "integers"),
        "ties of fp8 are rounded up",
    ),
    Mutation(
        CUDA + "numbers.cuh",
        'asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(__int_as_float(0x7f800000)));',
        "y = x;",
        moves("a tile", "many warps"),
        "another NaN is written",
    ),
    Mutation(
        CUDA + "numbers.cuh",
        "return is_nan(x) ? 0 : __float2ll_rn(",
        "return __float2ll_rn(",
        cells("round_to_int"),
        "NaN has a code of its own",
    ),
    Mutation(
        CUDA + "numbers.cuh",
        "V maximum_number(V a, V b) { return a > b || is_nan(b) ? a : b; }",
        "V maximum_number(V a, V b) { return a > b ? a : b; }",
        cells("fmax"),
        "fmax takes NaN for a number",
    ),
    Mutation(
        "codegen/intrinsics.py",
        '_real("fmax", "maximum_number", "maximum_number"',
        '_real("fmax", "fmax", "maximum_number"',
        cells("fmax"),
        "CUDA's fmax has a rule of its own for zeros",
    ),
    Mutation(
        "codegen/intrinsics.py",
        '_real("remainder", "remainder_floor", "remainder"',
        '_real("remainder", "fmod", "remainder"',
        cells("remainder"),
        "a remainder has the sign of the dividend",
    ),
    Mutation(
        CUDA + "remainders.cuh",
        "return absolute(a) < absolute(b) ? absolute(a) : Counted<C>",
        "return Counted<C>",
        where("tests/host/test_remainders_on_the_host.py"),
        "a remainder depends on the estimate that it starts from",
    ),
    Mutation(
        CUDA + "remainders.cuh",
        "(absolute(found.rest) < size)",
        "(absolute(found.rest) <= size)",
        where("tests/host/test_remainders_on_the_host.py"),
        "a quotient toward minus infinity is one too small",
    ),
    Mutation(
        CUDA + "quotient.cuh",
        "return absolute(r) > C(0) ? fused(r, y, q0) : q0;",
        "return fused(r, y, q0);",
        moves("quotients of any number"),
        "the quotient of an infinity is NaN",
    ),
    Mutation(
        CUDA + "quotient.cuh",
        "within(safe_divisor(s) && exponent(s) == absolute(s)) {}",
        "within(safe_divisor(s)) {}",
        where("tests/host/test_shared_values_on_the_host.py"),
        "a product with an inverse that was rounded passes for a quotient",
    ),
    Mutation(
        CUDA + "quotient.cuh",
        "within(low != C(0) && high != C(0)) {}",
        "within(high != C(0)) {}",
        where("tests/host/test_shared_values_on_the_host.py"),
        "an element of 0 cut to -0 is 0",
    ),
    Mutation(
        CUDA + "random.cuh",
        "s > C(0) ? ceil(s * uniform_shares<C>::all) : C(0)) {}",
        "s > C(0) ? floor(s * uniform_shares<C>::all) : C(0)) {}",
        where("tests/host/test_random_on_the_host.py"),
        "a random number just below a limit reaches it",
    ),
    Mutation(
        "runtime/cpu/device.h",
        "if (__builtin_expect(unusual_seen, 0)) loop();",
        "if (__builtin_expect(unusual_seen > 1, 0)) loop();",
        where("tests/cpu/test_kernels_on_the_cpu.py::test_what_few_elements_ask_for"),
        "on the CPU an angle beyond 2^17 takes the way of the others",
    ),
    Mutation(
        "runtime/cpu/makers.h",
        "if (How::of(found, ValueAndIndex<V>{best, first}).index != first) return;",
        "if (How::of(found, ValueAndIndex<V>{best, first}).index != first && !is_nan(best)) return;",
        where("tests/cpu/test_kernels_on_the_cpu.py::test_indices_are_sought_in_blocks"),
        "on the CPU the last block with NaN has the index",
    ),
    Mutation(
        CUDA + "erf.cuh",
        "const f64 t = at_most(absolute(x), 40.0), back = -0.5 * t, minus = back * t;",
        "const f64 t = absolute(x), back = -0.5 * t, minus = back * t;",
        cells("gelu_slope"),
        "the slope of gelu is NaN at infinity",
    ),
    # ---- the runtime: numbers ----
    Mutation(
        "runtime/model/sum_order.py",
        "(-(-length // (GROUP * ACCUMULATOR_GROUPS)) - 1).bit_length()",
        "(-(-length // (GROUP * ACCUMULATOR_GROUPS))).bit_length()",
        where(RUNTIME + "test_rows.py"),
        "a row has twice its accumulators",
    ),
    Mutation(
        "runtime/reference/reductions.py",
        "values = combine(values[..., ::2], values[..., 1::2])",
        "values = combine(*np.split(values, 2, axis=-1))",
        where(RUNTIME + "test_rows.py"),
        "halves are joined, not neighbours",
    ),
    Mutation(
        "runtime/reference/reductions.py",
        "_extreme(rows, np.max, np.logical_and)",
        "_extreme(rows, np.max, np.logical_or)",
        where(RUNTIME + "test_rows.py"),
        "the largest of both zeros is -0",
    ),
    Mutation(
        "runtime/model/dtypes.py",
        "if values.dtype == np.float64 and self.bits < 32:",
        "if values.dtype == np.float64 and self.bits < 8:",
        (CONFORMANCE + "test_fp8.py", CONFORMANCE + "test_dequantize.py"),
        "f64 is rounded twice on its way to half types",
    ),
    # ---- the runtime: where elements lie ----
    Mutation(
        "runtime/schedules/axes.py",
        "if extent % block or (block % 2 and packed):",
        "if block % 2 and packed:",
        where(RUNTIME + "test_elementwise_indices.py"),
        "a short last group is taken for a whole one",
    ),
    Mutation(
        "runtime/schedules/axes.py",
        "all(a == b * axis.extent for a, b in",
        "all(a >= b * axis.extent for a, b in",
        where(RUNTIME + "test_elementwise_indices.py"),
        "axes with a gap between them are merged",
    ),
    Mutation(
        "runtime/schedules/geometry.py",
        "narrow = -(-(1 << (31 + shift)) // divisor)",
        "narrow = (1 << (31 + shift)) // divisor",
        where(RUNTIME + "test_elementwise_indices.py"),
        "the multiplier of a division is rounded down",
    ),
    Mutation(
        "runtime/schedules/elementwise.py",
        "(length < lanes + 2 * MARGIN or",
        "(length < lanes or",
        where(RUNTIME + "test_elementwise_indices.py"),
        "rows too short for shifted vectors are given to them",
    ),
    Mutation(
        "runtime/plans/one_element.py",
        "            self.vectors = tuple(map(or_, self.vectors, self._elementwise.plan.vectors))",
        "            pass",
        where(RUNTIME + "test_one_element.py"),
        "an elementwise form takes vectors of arrays whose alignment nobody asks for",
    ),
    Mutation(
        "codegen/one_element.py",
        "        and {*op.along} != last",
        "        and bool(last)",
        where(RUNTIME + "test_one_element.py"),
        "rows that blocks hold have an elementwise form for one element",
        generate=True,
    ),
    Mutation(
        CUDA + "columns.cuh",
        "return row + 1 == i32(period.divisor) ? 0 : row + 1;",
        "return row + 1;",
        where("tests/host/test_own_rows.py::test_bytes[stacked]"),
        "behind a stack's table come inputs of rows that it does not have",
    ),
    Mutation(
        "runtime/launch/fast_path_text.py",
        'what += [f"not v{index}.flags.writeable" for index in indices if index in self.outputs]',
        'what += [f"not v{index}.flags.writeable" for index in indices if index in ()]',
        where(RUNTIME + "test_launch_on_the_cpu.py"),
        "calls that repeat one write to arrays that refuse it",
    ),
    Mutation(
        "runtime/plans/multi_kernel.py",
        "size += -(-count(shape) * storage.itemsize // _ALIGNED) * _ALIGNED",
        "size += count(shape) * storage.itemsize",
        moves("values of several types between stages"),
        "values in the workspace begin anywhere",
    ),
    Mutation(
        "runtime/schedules/split_reduction.py",
        "return -(-size // widest) * widest",
        "return size",
        where(RUNTIME + "test_split_indices.py", "room"),
        "the workspace forgets how the struct of an accumulator ends",
    ),
    Mutation(
        "runtime/schedules/split_reduction.py",
        "room = -(-cut.splits // GROUP) * GROUP if self.count == 1 else cut.splits",
        "room = cut.splits",
        where(RUNTIME + "test_split_indices.py", "room"),
        "eight splits are read where there are fewer",
    ),
    Mutation(
        "runtime/arrays/views.py",
        "if not contiguous and any(stride % itemsize for stride in byte_strides):",
        "if False:",
        where(RUNTIME + "test_tensor.py"),
        "strides of broken elements are rounded",
    ),
    Mutation(
        "runtime/arrays/views.py",
        "contiguous = 0 in shape or all(n == 1 or step",
        "contiguous = all(step",
        where(RUNTIME + "test_tensor.py"),
        "the stride of an axis of one element counts",
    ),
    # ---- the runtime: what is refused, what is kept ----
    Mutation(
        "runtime/arrays/aliasing.py",
        "        if stride <= reach:",
        "        if stride < reach:",
        where(RUNTIME + "test_tensor.py"),
        "elements that meet exactly are not seen",
    ),
    Mutation(
        "runtime/arrays/aliasing.py",
        "    except (np.exceptions.TooHardError, OverflowError):",
        "    except OverflowError:",
        where(RUNTIME + "test_tensor.py"),
        "what is too hard to decide is an error",
    ),
    Mutation(
        "runtime/launch/arguments.py",
        "    if low_a >= high_b or low_b >= high_a:",
        "    if low_a >= high_b or low_b <= high_a:",
        (RUNTIME + "test_launch.py", CONFORMANCE + "test_arguments.py"),
        "outputs that overlap inputs are let through",
    ),
    Mutation(
        "runtime/launch/arguments.py",
        "    if size < plan.workspace_size:",
        "    if size < plan.workspace_size - 1:",
        where(RUNTIME + "test_workspace.py"),
        "a workspace may be a byte too small",
    ),
    Mutation(
        "runtime/model/descriptor.py",
        "if not dtype.lowest <= value <= dtype.highest:",
        "if not dtype.lowest <= value:",
        where(CONFORMANCE + "test_arguments.py"),
        "q_max may be beyond its type",
    ),
    Mutation(
        "runtime/model/descriptor.py",
        "            holds = requirement.holds(**chosen)",
        "            holds = True",
        where(CONFORMANCE + "test_arguments.py"),
        "requirements are not asked",
    ),
    Mutation(
        "runtime/launch/cubin_cache.py",
        "entry, arch, compiler.OPTIONS)).encode()",
        "entry, compiler.OPTIONS)).encode()",
        where(RUNTIME + "test_cache.py", "another_entry"),
        "kernels of other architectures are taken from the cache",
    ),
    Mutation(
        "runtime/launch/cubin_cache.py",
        "(FORMAT, source, included, entry,",
        "(FORMAT, source, entry,",
        where(RUNTIME + "test_cache.py", "part_of_the_key"),
        "a changed header leaves the cache as it is",
    ),
    Mutation(
        "runtime/plans/selection.py",
        "        keepdims,\n        device == CPU,",
        "        keepdims,\n        True,",
        where(RUNTIME + "test_launch.py", "no_arrays_of_the_other"),
        "plans of the CPU serve the GPU",
    ),
    Mutation(
        "runtime/plans/selection.py",
        "return type(value), tuple(map(_in_key, value)) if isinstance(value, tuple) else told_apart(value)",
        "return tuple(map(_in_key, value)) if isinstance(value, tuple) else told_apart(value)",
        (RUNTIME + "test_launch.py", CONFORMANCE + "test_arguments.py"),
        "True finds the plan of 1",
    ),
    Mutation(
        "runtime/model/shapes.py",
        "elif extent != found[axis] and extent != 1:",
        "elif extent > found[axis] and extent != 1:",
        where(CONFORMANCE + "test_broadcasting.py", "do_not_fit"),
        "shapes broadcast that do not fit",
    ),
    Mutation(
        "runtime/torch/gradients.py",
        "call = expanded(operator, operator.call_of(values))",
        "call = operator.call_of(values)",
        where("tests/pytorch/test_broadcasting.py", "expanded_tensors"),
        "gradients of operators are not reduced to the shapes of tensors",
    ),
    Mutation(
        "runtime/verification/texts.py",
        "    parts = [_code(text), *OPTIONS]",
        "    parts = [_code(text)]",
        where("tests/codegen/test_evidence.py"),
        "other compiler options are called verified",
    ),
    Mutation(
        "runtime/verification/texts.py",
        "    for kernel in (schedule, *SCHEDULES[schedule].then):",
        "    for kernel in (schedule,):",
        where("tests/codegen/test_evidence.py"),
        "a split reduction is called verified with another kernel that joins its parts",
    ),
    Mutation(
        "runtime/verification/evidence.py",
        "        return then is not None and then == self._texts.given(source, schedule)",
        "        return then is not None",
        where("tests/codegen/test_evidence.py"),
        "a changed header is called verified",
    ),
    Mutation(
        "runtime/verification/coverage.py",
        "                shown = needs if variant == by_types else needs - {formula}",
        "                shown = needs",
        where("tests/codegen/test_coverage.py", "preferred"),
        "formulas stand though no run took their preferred schedules",
    ),
    Mutation(
        "runtime/schedules/table.py",
        '.join(filter(str.isdigit, arch)) or 0) >= variant.least_arch',
        '.join(filter(str.isdigit, arch)) or 0) > variant.least_arch',
        where("tests/codegen/test_build.py", "named_for_each"),
        "sm_90 has no clusters",
    ),
    # ---- batches and shards ----
    Mutation(
        "runtime/frameworks/batching.py",
        "        if not has_lead and (not is_input or has_batch[operand.name]):",
        "        if not has_lead and is_input and has_batch[operand.name]:",
        where("tests/frameworks/test_batching.py"),
        "a batch is one call though an output has no entry for each",
    ),
    Mutation(
        "runtime/frameworks/batching.py",
        "        found[placing.name] = tuple(int(axis) % rank + 1 for axis in axes)",
        "        found[placing.name] = tuple(int(axis) + 1 for axis in axes)",
        where("tests/frameworks/test_batching.py"),
        "negative axes are those of another array in a batch",
    ),
    Mutation(
        "runtime/frameworks/sharding.py",
        "    multiple = lcm(*units, *[sizes[block] for block in whole if block])",
        "    multiple = max(units)",
        where("tests/frameworks/test_sharding.py"),
        "shards end within blocks",
    ),
    Mutation(
        "codegen/program.py",
        "    found = [each.text for node in formulas for each in (*node.reductions(), *node.counts())]",
        "    found = [each.text for node in formulas for each in node.reductions()]",
        where("tests/frameworks/test_sharding.py"),
        "what counts elements is split", generate=True,
    ),
)
