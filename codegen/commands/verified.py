"""What the records say of kernels as their sources are now, in words: for `show` and `check`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from skuda.codegen.intrinsics import COMMON_HEADER, INTRINSICS
from skuda.model.operation import Operation
from skuda.verification.coverage import RULE
from skuda.verification.evidence import Records
from skuda.verification.findings import Result, Run, Share, State, families
from skuda.verification.texts import header_digest


def summary(records: Records, kernels: Mapping[str, Operation]) -> str:
    """On which GPUs how many kernels gave the reference's bits, in a line.

    Args:
        records: of the catalog.
        kernels: the operation of each, by symbol.
    """
    counts: dict[str, int] = {}
    for symbol, operation in kernels.items():
        for each in records.current(operation.source, symbol):
            counts[each.gpu] = counts.get(each.gpu, 0) + each.result.bit_equal
    standing = sum(records.state(each.source, symbol) is State.COVERED for symbol, each in kernels.items())
    by_rule = [f"{standing} of {len(kernels)} covered by the rule ({RULE})"] if standing else []
    if not any(counts.values()) and not standing:
        return "not verified on a GPU" + ("" if records.verified else f" (no record in {records.folder})")
    ran = [f"{count} of {len(kernels)} kernels bit-equal on {gpu}" for gpu, count in counts.items()]
    return "; ".join([*ran, *by_rule])


def by_types(records: Records, kernels: Mapping[str, Operation]) -> Iterator[str]:
    """What was compared and how fast it is: a line for each choice of types, or one line where nothing counts.

    Lines of stages say which one.
    """
    good = (State.VERIFIED, State.COVERED, State.DIFFERS)
    if not any(records.state(operation.source, symbol) in good for symbol, operation in kernels.items()):
        states = dict.fromkeys(explained(records, operation.source, symbol) for symbol, operation in kernels.items())
        stage = _stage(next(iter(kernels.values()))) if kernels else ""
        yield f"{stage}none of {len(kernels)} kernels verified ({', '.join(states)})"
        return
    for family, variants in families(kernels).items():
        symbols = [f"{family}__{variant}" for variant in variants]
        operation = kernels[symbols[0]]
        types = family.removeprefix(operation.function + "_").replace("_", " ")
        yield f"{_stage(operation)}{types}: {'; '.join(_statements(records, operation.source, symbols))}"


def bound(records: Records, name: str) -> str:
    """How far a function in common steps was off with its steps as they are now; "" for any other function."""
    row = INTRINSICS.get(name)
    if row is None or row.ulp is None:
        return ""
    digest, said = header_digest(row.header or COMMON_HEADER), []
    every = {word: records.bounds.get((name, word), []) for word in ("f32", "f64")}
    for word, bounds in every.items():
        said += [f"{each.worst_ulp:.4g} in {word} ({each.where})" for each in bounds if each.digest == digest]
    if said:
        return f"measured {', '.join(said)}"
    return "not verified (its steps changed since)" if any(every.values()) else "not measured on a GPU yet"


def broken(records: Records) -> Iterator[str]:
    """Functions in common steps that were further off, as they are now, than the intrinsics' table promises."""
    for (name, word), bounds in records.bounds.items():
        row = INTRINSICS.get(name)
        if row is None or row.ulp is None:
            continue
        digest, promised = header_digest(row.header or COMMON_HEADER), row.ulp[("f32", "f64").index(word)]
        for each in bounds:
            if each.digest == digest and (each.worst_ulp > promised or each.wrong):
                yield f"{name} of {word} on {each.where}: {each.worst_ulp:.4g} at {each.at}, promised {promised:g}"


def _stage(operation: Operation) -> str:
    stage = f"stage {operation.analysis.stage}, " if operation.analysis.stage else ""
    return f"{stage}of one element, " if operation.analysis.of_one else stage


def _statements(records: Records, source: str, symbols: Sequence[str]) -> Iterator[str]:
    found: dict[tuple[str, ...], list] = {}
    for symbol in symbols:
        for each in records.current(source, symbol):
            where = f"on {each.gpu} (driver {each.run.driver}, {each.run.date}{carried(each.run)})"
            least = "at least " if each.result.fewest else ""
            found.setdefault((f"{in_words(each.result)} in {least}", where), []).append(each.result.cases)
    for (result, where), cases in found.items():
        yield f"{len(cases)} of {len(symbols)} kernels {result}{sum(cases)} calls {where}"
    states = {symbol: records.state(source, symbol) for symbol in symbols if not records.current(source, symbol)}
    standing = [symbol for symbol, state in states.items() if state is State.COVERED]
    if standing:
        yield f"{len(standing)} of {len(symbols)} kernels {explained(records, source, standing[0])}"
    lacking = [symbol for symbol in states if symbol not in standing]
    if lacking:
        reasons = dict.fromkeys(explained(records, source, symbol) for symbol in lacking)
        yield f"{len(lacking)} of {len(symbols)} kernels not verified ({', '.join(reasons)})"
    by_gpu: dict[str, list[Share]] = {}
    for symbol in symbols:
        for share in records.shares(source, symbol):
            by_gpu.setdefault(share.gpu, []).append(share)
    for gpu, shares in by_gpu.items():
        yield f"{speed(shares)} on {gpu}"


def of_kernel(records: Records, source: str, symbol: str) -> Iterator[str]:
    """Everything that is known of one kernel, a line each."""
    for each in records.current(source, symbol):
        where = f"{each.gpu}, driver {each.run.driver}, CUDA {each.run.cuda}"
        counted = f", {each.result.finite:,} finite values" if each.result.finite else ""
        when = f"{each.run.date}{carried(each.run)}"
        least = "at least " if each.result.fewest else ""
        yield f"{in_words(each.result)} in {least}{each.result.cases} calls{counted} on {where}, {when}"
    if not records.current(source, symbol):
        said = explained(records, source, symbol)
        yield f"did not run itself: {said} ({RULE})" if records.covered(source, symbol) else f"not verified ({said})"
    shares = records.shares(source, symbol)
    if not shares:
        yield "share of the copy's speed: not measured with this source"
    for share in shares:
        yield f"share of the copy's speed, {share.shape} on {share.gpu}: {share.share:.2f}"


def carried(run: Run) -> str:
    """What to say of a kernel that ran with another source, which gave the same machine code."""
    return f", with source {run.carried[:12]} of the same machine code" if run.carried else ""


def in_words(result: Result) -> str:
    """`bit-equal`, or how far off the worst element was."""
    if result.bit_equal:
        return "bit-equal"
    off = "NaN against a number, or no result" if result.worst_ulp is None else f"{result.worst_ulp} ulp"
    return f"{State.DIFFERS} (worst: {off})"


def speed(shares: Sequence[Share]) -> str:
    """Median and worst of some rows of the bench."""
    slowest = min(shares, key=lambda share: share.share)
    median = statistics.median(share.share for share in shares)
    return f"{median:.2f} of the copy's speed, worst {slowest.share:.2f} ({slowest.shape})"


def explained(records: Records, source: str, symbol: str) -> str:
    """The state of a kernel; with since when and where it stands, or was run if its source has changed."""
    state = records.state(source, symbol)
    if state is State.COVERED:
        return "; ".join(f"{state.value} since {each.date} on {each.gpu}" for each in records.covered(source, symbol))
    if state is not State.CHANGED:
        return state.value
    last = max(records.findings(source, symbol), key=lambda each: each.run.date)
    return f"{state.value} {last.run.date} on {last.gpu}"


def complaints(records: Records, kernels: Mapping[str, Operation], full: bool) -> list[str]:
    """The kernels that are not verified: how many of each operation and why, and which.

    Args:
        records: of the catalog.
        kernels: the operation of each, by symbol.
        full: name every kernel.
    """
    reasons: dict[str, dict[str, list[str]]] = {}
    totals: dict[str, int] = {}
    for symbol, operation in kernels.items():
        totals[operation.function] = totals.get(operation.function, 0) + 1
        if records.state(operation.source, symbol) not in (State.VERIFIED, State.COVERED):
            reason = explained(records, operation.source, symbol)
            reasons.setdefault(operation.function, {}).setdefault(reason, []).append(symbol)
    lines = []
    for function, found in reasons.items():
        for reason, symbols in found.items():
            lines.append(f"{function}: {len(symbols)} of {totals[function]} kernels not verified: {reason}")
            lines += [f"  {symbol}" for symbol in symbols] if full else []
    return lines
