# SPDX-License-Identifier: Apache-2.0
"""What arrays are taken, and what errors say."""

import ctypes
import pathlib
import shutil

import ddtree
import numpy
import pytest

SHAPE = ddtree.Shape(vocab=50, depth=2, top_k=4, budget=6)


def logits(place, shape=(1, 2, 50), dtype="float32"):
    values = numpy.random.default_rng(0).normal(size=shape).astype(dtype)
    return place.array(values)


def error_of(function, *arguments, **options):
    with pytest.raises((ValueError, TypeError, ddtree.Error)) as caught:
        function(*arguments, **options)
    return str(caught.value)


def test_errors_name_the_argument(place):
    candidates = ddtree.expand(SHAPE, logits(place))
    root = place.array([1], "int32")
    tree = ddtree.build_tree(SHAPE, candidates, root)
    wrong = place.array([1, 2], "int32")
    assert "expand: draft has shape (1, 3, 50)" in error_of(
        ddtree.expand, SHAPE, logits(place, (1, 3, 50))
    )
    assert "expand: draft is i32" in error_of(ddtree.expand, SHAPE, place.array([[[1]]], "int32"))
    assert "expand: draft is a list, not an array" in error_of(ddtree.expand, SHAPE, [1.0])
    assert "build_tree: root has shape (2,), (1,) is wanted" in error_of(
        ddtree.build_tree, SHAPE, candidates, wrong
    )
    assert "build_tree: root is f32" in error_of(
        ddtree.build_tree, SHAPE, candidates, place.array([1], "float32")
    )
    assert "write_mask: region is 'none'" in error_of(
        ddtree.write_mask, SHAPE, tree, place.array(numpy.zeros((1, 7, 7), "uint8")), region="none"
    )
    assert "write_mask: out has 9 columns" in error_of(
        ddtree.write_mask, SHAPE, tree, place.array(numpy.zeros((1, 7, 9), "uint8"))
    )
    assert "accept_tokens: target_token is not contiguous" in error_of(
        ddtree.accept_tokens, SHAPE, tree, place.array(numpy.zeros((1, 14)), "int64")[:, ::2]
    )
    small = place.array(numpy.zeros(8, "uint8"))
    candidates.token = place.array(numpy.zeros((1, 2, 4)), "int64")
    assert "build_tree: candidates.token is i64" in error_of(
        ddtree.build_tree, SHAPE, candidates, root
    )
    caught = error_of(ddtree.Round, SHAPE, small)
    assert caught == "decoding_round::create: memory.bytes too small"


def test_what_the_library_refuses_has_a_code(place):
    with pytest.raises(ddtree.Error) as caught:
        ddtree.expand(ddtree.Shape(vocab=50, depth=2, top_k=4, budget=5000), logits(place))
    assert caught.value.code == "invalid_argument"
    assert str(caught.value) == "expand: shape.budget outside [0, 2047]"


def test_read_only_arrays_are_not_written():
    out = numpy.zeros((1, 7, 7), "uint8")
    candidates = ddtree.expand(SHAPE, numpy.zeros((1, 2, 50), "float32"))
    tree = ddtree.build_tree(SHAPE, candidates, numpy.array([1], "int32"))
    out.setflags(write=False)
    assert error_of(ddtree.write_mask, SHAPE, tree, out) == "write_mask: out is read-only"


class OnlyDlpack:
    """An array that nothing else can be asked of."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class OnlyCudaInterface:
    def __init__(self, tensor):
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def test_dlpack_is_enough(place):
    array = logits(place)
    candidates = ddtree.expand(SHAPE, array)
    again = ddtree.Candidates.empty(SHAPE, array)
    given = ddtree.Candidates(*(OnlyDlpack(a) for a in vars(again).values()))
    scratch = place.array(numpy.zeros(1 << 20, "uint8"))
    ddtree.expand(SHAPE, OnlyDlpack(array), out=given, workspace=scratch)
    assert (place.host(again.token) == place.host(candidates.token)).all()
    assert (place.host(again.log_prob) == place.host(candidates.log_prob)).all()


def test_cuda_array_interface_is_enough(place):
    if place.name != "torch-cuda":
        pytest.skip("the interface is CUDA's")
    array = logits(place)
    candidates = ddtree.expand(SHAPE, array)
    again = ddtree.Candidates.empty(SHAPE, array)
    given = ddtree.Candidates(*(OnlyCudaInterface(a) for a in vars(again).values()))
    scratch = place.array(numpy.zeros(1 << 20, "uint8"))
    ddtree.expand(SHAPE, OnlyCudaInterface(array), out=given, workspace=scratch)
    place.torch.cuda.synchronize()
    assert (place.host(again.token) == place.host(candidates.token)).all()


def test_bfloat16_is_read(place):
    if place.name == "numpy":
        pytest.skip("NumPy has no bfloat16")
    wide = logits(place).bfloat16()
    half = ddtree.expand(SHAPE, wide)
    whole = ddtree.expand(SHAPE, wide.float())
    assert (place.host(half.token) == place.host(whole.token)).all()
    assert (place.host(half.log_prob) == place.host(whole.log_prob)).all()


def test_arrays_of_two_devices_are_refused(place):
    if place.name != "torch-cuda":
        pytest.skip("one device here")
    candidates = ddtree.expand(SHAPE, logits(place))
    message = error_of(ddtree.build_tree, SHAPE, candidates, numpy.array([1], "int32"))
    assert message == "build_tree: root is on cpu, the others on 0"


def test_every_variant_can_be_forced(place):
    backend = "cuda" if place.name == "torch-cuda" else "cpu"
    names = [variant for call, variant in ddtree.variants(backend) if call == "expand"]
    expected = ddtree.expand(SHAPE, logits(place))
    assert names
    for name in names:
        device = 0 if backend == "cuda" else "cpu"
        stream = place.torch.cuda.current_stream().cuda_stream if backend == "cuda" else None
        ctx = ddtree.Context(device, stream, variant=f"expand={name}")
        try:
            got = ddtree.expand(SHAPE, logits(place), ctx=ctx)
        except ddtree.Error as error:
            assert error.code == "unsupported"
            continue
        assert (place.host(got.token) == place.host(expected.token)).all()


def test_a_second_copy_of_the_library_runs_its_own_code(place, tmp_path):
    path = pathlib.Path(ddtree.__file__).parent / "libddtree.so"
    copy = ctypes.CDLL(str(shutil.copy(path, tmp_path / "other.so")))
    original = ddtree.library.ddtree_expand
    expected = ddtree.expand(SHAPE, logits(place))
    copy.ddtree_expand.argtypes, copy.ddtree_expand.restype = original.argtypes, original.restype
    assert ctypes.cast(copy.ddtree_expand, ctypes.c_void_p).value != (
        ctypes.cast(original, ctypes.c_void_p).value
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddtree.library, "ddtree_expand", copy.ddtree_expand)
        got = ddtree.expand(SHAPE, logits(place))
    again = ddtree.expand(SHAPE, logits(place))
    for other in (got, again):
        assert (place.host(other.token) == place.host(expected.token)).all()
        assert (place.host(other.log_prob) == place.host(expected.log_prob)).all()


def test_the_version_is_the_librarys():
    assert ddtree.__version__ == "{}.{}.{}".format(
        *(ddtree.library.ddtree_version() // n % 100 for n in (10000, 100, 1))
    )


def test_the_guides_lines_run():
    guide = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
    if not guide.exists():
        pytest.skip("the guide is not here")
    code = guide.read_text().split("```python\n")[1].split("```")[0]
    names = {}
    exec(code, names)
    assert names["accepted"].path.shape == (1, 16)
