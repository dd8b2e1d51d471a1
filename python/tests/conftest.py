# SPDX-License-Identifier: Apache-2.0
"""Every test runs over NumPy, torch on the CPU and torch on a GPU; what is not here is skipped."""

import ddtree
import numpy
import pytest


class Place:
    """Where the arrays of a test live."""

    def __init__(self, name):
        self.name = name
        if name == "numpy":
            return
        torch = pytest.importorskip("torch", reason="no torch here")
        self.torch = torch
        self.device = name.split("-")[1]
        if self.device == "cuda":
            if not torch.cuda.is_available():
                pytest.skip("no GPU here")
            if not ddtree.compiled_architectures():
                pytest.skip("this build of ddtree has no CUDA")

    def array(self, values, dtype=None):
        values = numpy.ascontiguousarray(values, dtype)
        if self.name == "numpy":
            return values.copy()
        if values.dtype == numpy.uint32:
            values = values.view(numpy.int32)
        return self.torch.tensor(values, device=self.device)

    def host(self, array):
        return array if self.name == "numpy" else array.cpu().numpy()


@pytest.fixture(params=["numpy", "torch-cpu", "torch-cuda"])
def place(request):
    return Place(request.param)


@pytest.fixture(params=range(3))
def rng(request):
    return numpy.random.default_rng(request.param)
