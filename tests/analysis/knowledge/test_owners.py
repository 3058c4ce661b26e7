"""Tests of the owners of GPU time: one row each, and the same answer from code and store."""

import re

import pytest

from sawtooth.analysis.derive.events import GPU_KINDS
from sawtooth.analysis.derive.layout import derived_layout
from sawtooth.analysis.knowledge.kernel_names import classify
from sawtooth.analysis.knowledge.owners import COMPUTE_OWNERS, KERNEL_OWNERS, LOST_OWNERS, OWNER_KEYS, OWNERS, owner_of


@pytest.mark.parametrize(
    ("kind", "category", "tensor_cores", "owner"),
    [
        ("kernel", "gemm", "yes", "tensor_core_compute"),
        ("kernel", "gemm", "likely", "tensor_core_compute"),
        ("kernel", "gemm", "no", "other_compute"),
        ("kernel", "other", "unknown", "other_compute"),
        ("kernel", "communication", "yes", "exposed_comm"),
        ("memset", "other", "no", "memset"),
        ("kernel", "memset", "no", "memset"),
        ("memcpy", "other", "no", "exposed_memcpy"),
        ("kernel", "memcpy", "no", "exposed_memcpy"),
        ("memcpy", "memset", "no", "exposed_memcpy"),
    ],
)
def test_the_owner_of_an_operation(kind: str, category: str, tensor_cores: str, owner: str) -> None:
    assert owner_of(category, tensor_cores, kind) == owner


def test_copies_have_one_owner_with_and_without_a_kind() -> None:
    for kind in GPU_KINDS[1:]:
        known = classify("Memcpy HtoD (Pageable -> Device)", kind)
        assert owner_of(known.category, known.tensor_cores) == owner_of(known.category, known.tensor_cores, kind)


def test_every_row_has_the_required_fields() -> None:
    for owner in OWNERS:
        assert all((owner.label, owner.work, owner.meaning.endswith("."), owner.colour)), owner.key
        assert bool(owner.loses_to) == owner.lost, owner.key
        assert not (owner.lost and owner.computes), owner.key
    assert OWNER_KEYS[-1] == "idle", "the ledger paints the others over it"
    assert LOST_OWNERS == ("exposed_comm", "exposed_memcpy", "idle")
    assert {*COMPUTE_OWNERS, "exposed_comm"} == set(KERNEL_OWNERS)


def test_the_store_lists_all_owners() -> None:
    sql = derived_layout()
    for column, keys in (("segments.owner", OWNER_KEYS), ("gaps.owner", LOST_OWNERS)):
        listed = re.search(rf"{column} IS '([^']*)'", sql)
        assert listed and tuple(listed[1].replace(" or ", ", ").split(", ")) == keys
