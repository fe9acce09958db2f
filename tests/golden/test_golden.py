"""The bits of every kernel, layer and short training are those that were stored; see compute.py."""

from __future__ import annotations

import pytest
import torch

from golden import adapter, compute

PLANS = [
    pytest.param(group, level, threads, id=f"{group}-{level}", marks=[pytest.mark.slow] * (group == "training"))
    for group in compute.GROUPS
    for level, threads in compute.plan(group)
]


def skip_unless_comparable(group: str, level: str) -> None:
    record = compute.stored(group)
    here = compute.environment(group)
    for name, value in record["environment"].items():
        if here[name] != value:
            pytest.skip(f"{name}: hashes are stored for {value}, this is {here[name]}")
    if level not in record["hashes"]:
        pytest.skip(f"no hashes are stored for {level}")


@pytest.mark.skipif(adapter.library_path() is None, reason="the CPU kernels are not built")
@pytest.mark.parametrize(("group", "level", "threads"), PLANS)
def test_bits_are_those_stored(group: str, level: str, threads: list[int]) -> None:
    skip_unless_comparable(group, level)
    expected = compute.stored(group)["hashes"][level]
    got = compute.compute_apart(group, level, threads)
    assert got.keys() == expected.keys()
    for count in expected:
        # Cases that are newer than the stored hashes, such as a model added since, have nothing to be compared with.
        lost = expected[count].keys() - got[count].keys()
        assert not lost, f"cases that are stored but no longer computed: {sorted(lost)}"
        changed = {
            f"{case}: {name}"
            for case, hashes in expected[count].items()
            for name in hashes.keys() | got[count][case].keys()
            if hashes.get(name) != got[count][case].get(name)
        }
        assert not changed, f"{len(changed)} tensors changed with {count} threads: {sorted(changed)[:20]}"


def test_one_changed_bit_changes_the_hash() -> None:
    values = torch.ones(3)
    before = compute.cases.digest(values)
    values.view(torch.int32)[1] ^= 1
    assert compute.cases.digest(values) != before


def test_values_are_the_same_everywhere() -> None:
    assert compute.cases.Values(0)(4).tolist() == [
        0.27392327785491943,
        -0.4604266881942749,
        -0.9180530309677124,
        -0.9669448137283325,
    ]
