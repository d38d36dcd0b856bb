"""The hash of a column is the hash of each key, with both kernels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.key_hashes import murmur2_column
from shoal.client.partitioner import murmur2
from tests.records.generate import each_kernel, using


@each_kernel
@given(st.lists(st.none() | st.binary(max_size=20), max_size=30))
def test_a_column_of_keys_hashes_like_each_key(kernel_name, keys):
    with using(kernel_name):
        hashes = murmur2_column(pa.array(keys, pa.binary()))
    assert hashes.dtype == np.uint32
    for key, found in zip(keys, hashes.tolist(), strict=True):
        if key is not None:
            assert found == murmur2(key)


@each_kernel
@given(st.integers(0, 13).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n))))
def test_keys_of_one_size_hash_like_each_key(kernel_name, keys):
    padded = pa.array([b"before", *keys, b"after"], pa.binary())
    with using(kernel_name):
        hashes = murmur2_column(padded.slice(1, len(keys)))
    assert hashes.tolist() == [murmur2(key) for key in keys]
