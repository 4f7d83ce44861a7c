"""How XLA partitions a call over devices: without communication wherever the named dimensions allow it.

XLA asks twice: how shardings spread from one array of a call to the others, and what each device computes once every
array has one. Both answers follow from `skuda.frameworks.sharding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import ArrayMapping, CompoundFactor, SdyShardingRule, custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from skuda.frameworks.sharding import Axes, Rule, factors, rule
from skuda.jax import on_device
from skuda.jax.program import Program
from skuda.model.dtypes import DTYPES

Key = tuple[str, int]  # of a factor
_ALIKE = ("max", "min", "any", "all")  # reductions that give the same of parts, to the bit


@lru_cache(4096)
def partitioned(program: Program, has_64_bits: bool):
    """The jaxpr of a call, partitioned; its results depend on whether JAX has elements of 64 bits."""
    call = _partitions(program)
    inputs = len(program.operation.inputs)
    function = custom_partitioning(lambda *arrays: tuple(on_device.call(program, *arrays)))
    function.def_partition(
        partition=call.partition,
        infer_sharding_from_operands=call.results,
        sharding_rule=call.sharding_rule(),
    )
    arrays = [jax.ShapeDtypeStruct(*each) for each in zip(program.shapes[:inputs], program.storages[:inputs])]
    return jax.make_jaxpr(function)(*arrays)


def explicit_shardings(program: Program, arguments: Sequence) -> tuple[NamedSharding, ...]:
    """The shardings of a call's results where types have shardings: on a mesh with explicit axes.

    Args:
        program: of the call.
        arguments: its inputs, with an attribute `sharding`.
    """
    return _partitions(program).results(arguments[0].sharding.mesh, arguments, ())


@lru_cache(4096)
def _partitions(program: Program) -> _Partitions:
    return _Partitions(program)


class _Partitions:
    """How one call is partitioned.

    Attributes:
        axes: of each operand, what its axes are.
        rules: of each factor.
    """

    def __init__(self, program: Program):
        self.program = program
        operation, plan = program.operation, program.plan
        order = None if program.axes is None else program.axes.order
        keeps = operation.analysis.keeps if program.keepdims else ()
        found = factors(operation, plan.sizes, plan.types, order, keeps)
        self.axes: list[Axes] = [found[operand.name] for operand in operation.operands]
        self.inputs = len(operation.inputs)
        keys = dict.fromkeys(each.key for own in self.axes for each in own if each is not None)
        self.rules = {key: self._exact(rule(operation, found, key, plan.sizes)) for key in keys}

    def _exact(self, found: Rule) -> Rule:
        """The rule where results of parts are joined to the bit: floats are summed in one order, so by one device. XLA
        takes a factor as one that is split or as one that is reduced, for all results."""
        floats = [DTYPES[word].kind == "float" for word in self.program.plan.words[self.inputs :]]
        exact = [how in _ALIKE or (how == "sum" and not each) for how, each in zip(found.partial, floats)]
        return found if all(exact) else Rule(False, found.multiple)

    # ---- how shardings spread ----

    def sharding_rule(self) -> SdyShardingRule:
        """The factors of each array's axes, and which of them devices cannot split."""
        units: dict[Key, list[int]] = {}
        for own in self.axes:
            for each in own:
                if each is not None:
                    units.setdefault(each.key, []).append(each.unit)
        names = {key: _Names(f"f{index}", sorted({*found}), self._extent(key))
                 for index, (key, found) in enumerate(units.items())}  # fmt: skip
        alone = iter(f"one{index}" for index in range(sum(len(own) for own in self.axes)))
        labels = [[(next(alone),) if f is None else names[f.key].of(f.unit) for f in own] for own in self.axes]
        order = list(dict.fromkeys(name for own in labels for each in own for name in each))  # which Shardy numbers by
        mappings = [ArrayMapping(*[e[0] if len(e) == 1 else CompoundFactor(*e) for e in own]) for own in labels]
        whole = [name for key, each in names.items() for name in each.whole(self.rules[key].splits)]
        joined = [each.first for key, each in names.items() if self.rules[key].splits and self.rules[key].partial]
        sizes = {name: size for each in names.values() for name, size in each.sizes.items()}
        return SdyShardingRule(
            operand_mappings=tuple(mappings[: self.inputs]),
            result_mappings=tuple(mappings[self.inputs :]),
            reduction_factors=tuple(sorted(joined, key=order.index)),
            need_replication_factors=tuple(sorted(whole, key=order.index)),
            **sizes,
        )

    def _extent(self, key: Key) -> int:
        size = self.program.plan.sizes[key[0]]
        return size[key[1]] if isinstance(size, tuple) else size

    # ---- what each device computes ----

    def results(self, mesh: Mesh, arguments: Sequence, results: Sequence) -> tuple[NamedSharding, ...]:
        """The shardings of the results that go with those of the arguments."""
        mesh, chosen = self._chosen(mesh, [each.sharding for each in arguments])
        return self._shardings(mesh, chosen)[self.inputs :]

    def partition(self, mesh: Mesh, arguments: Sequence, results: Sequence):
        """What `custom_partitioning` asks for: the mesh, what a device computes, shardings of results and arguments."""
        mesh, chosen = self._chosen(mesh, [each.sharding for each in (*arguments, *results)])
        shardings = self._shardings(mesh, chosen)
        parts = {key: prod(mesh.shape[name] for name in names) for key, names in chosen.items()}
        local = self.program.resized(_divided(self.program.plan.sizes, parts), self.program.axes)

        def compute(*arrays):
            outputs = on_device.call(local, *arrays)
            for key, names in chosen.items():
                if self.rules[key].partial:
                    outputs = [_joined(how, each, names) for how, each in zip(self.rules[key].partial, outputs)]
            return tuple(outputs)

        return mesh, compute, shardings[self.inputs :], shardings[: self.inputs]

    def _chosen(self, mesh: Mesh, shardings: Sequence) -> tuple[Mesh, dict[Key, tuple[str, ...]]]:
        """The axes of the mesh that each factor is split over, by the shardings that XLA proposes: those of the largest
        array that has it count. None where the shardings name no mesh: then every device computes everything."""
        if not all(isinstance(each, NamedSharding) for each in shardings):
            devices = next(iter(shardings)).device_set
            return Mesh(sorted(devices, key=lambda device: device.id), ("devices",)), {}
        order = sorted(range(len(shardings)), key=lambda index: -prod(self.program.shapes[index]))
        chosen: dict[Key, tuple[str, ...]] = {}
        for index in order:
            for factor, names in zip(self.axes[index], _spec(shardings[index], len(self.axes[index])), strict=True):
                if factor is None or not names or factor.key in chosen:
                    continue
                used = {name for each in chosen.values() for name in each}
                if not used & {*names} and self._fits(factor.key, prod(mesh.shape[name] for name in names)):
                    chosen[factor.key] = names
        return mesh, chosen

    def _fits(self, key: Key, parts: int) -> bool:
        found, extent = self.rules[key], self._extent(key)
        return found.splits and extent % parts == 0 and extent // parts % found.multiple == 0

    def _shardings(self, mesh: Mesh, chosen: Mapping[Key, tuple[str, ...]]) -> tuple[NamedSharding, ...]:
        """Of each array."""
        specs = [[None if each is None else chosen.get(each.key) for each in own] for own in self.axes]
        return tuple(NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs)


class _Names:
    """The names of one factor in a sharding rule: of several where arrays have entries for different numbers of its
    elements. All have the first.

    Attributes:
        first: that all have.
        sizes: of the others, which have a size of their own.
    """

    def __init__(self, name: str, units: list[int], extent: int):
        self.first = name
        self.sizes: dict[str, int] = {}
        self._apart = any(large % small for small, large in zip(units, units[1:])) or extent % units[-1] != 0
        self._apart |= len(units) > 1 and extent == units[-1]  # the first would have size 1, which is no factor
        self._names = {units[-1]: [name]}
        for small, large in reversed([*zip(units, units[1:])]):
            inner = f"{name}x{small}"
            self._names[small] = [*self._names[large], inner]
            if not self._apart:
                self.sizes[inner] = large // small

    def of(self, unit: int) -> tuple[str, ...]:
        """The names of an array's axis whose entries stand for so many elements, the outermost first."""
        names = self._names[unit]
        return tuple(names[-1:] if self._apart else names)

    def whole(self, splits: bool) -> list[str]:
        """The names of what devices cannot split."""
        used = [names[-1] for names in self._names.values()]
        return used if not splits or self._apart else used[1:]


def _spec(sharding: NamedSharding, rank: int) -> list[tuple[str, ...]]:
    """The axes of the mesh that each axis of an array is split over."""
    found = [() if each is None else each if isinstance(each, tuple) else (each,) for each in sharding.spec]
    return [*found, *[()] * (rank - len(found))]


def _divided(sizes: Mapping[str, Any], parts: Mapping[Key, int]) -> dict[str, Any]:
    """The sizes of dimensions on each device."""
    found: dict[str, Any] = {}
    for (name, index), count in parts.items():
        size = found.get(name, sizes[name])
        if isinstance(size, tuple):
            found[name] = (*size[:index], size[index] // count, *size[index + 1 :])
        else:
            found[name] = size // count
    return found


def _joined(how: str, value, names: tuple[str, ...]):
    """The reduction of all devices' values, to the bit."""
    if how == "sum":
        return jax.lax.psum(value, names)
    if value.dtype == jnp.bool_:
        return (jax.lax.pmax if how in ("any", "max") else jax.lax.pmin)(value.astype(jnp.int32), names) > 0
    found = (jax.lax.pmax if how == "max" else jax.lax.pmin)(_ordered(how, value), names)
    return _from_ordered(how, found, value.dtype)


def _ordered(how: str, value):
    """Integers in the order of floats, -0 below 0, with NaN beyond the end that wins."""
    bits = 8 * value.dtype.itemsize
    most = (1 << (bits - 1)) - 1  # NaN, as it is stored
    code = jax.lax.bitcast_convert_type(value, f"int{bits}").astype(f"int{max(bits, 32)}")
    found = jnp.where(code < 0, code ^ most, code)
    return found if how == "max" else jnp.where(code == most, -most - 1, found)


def _from_ordered(how: str, found, dtype):
    bits = 8 * dtype.itemsize
    most = (1 << (bits - 1)) - 1
    code = jnp.where(found < 0, found ^ most, found)
    code = code if how == "max" else jnp.where(found == -most - 1, most, code)
    return jax.lax.bitcast_convert_type(code.astype(f"int{bits}"), dtype)
