"""Which files of a repository are taken."""

import pytest

from models.choice import HubFile, choose, is_model_file, quantization_of, variants
from models.errors import FilesMissing, ModelNotFound

GB = 10**9


def files(*names: str, size: int = GB) -> list[HubFile]:
    return [HubFile(name, size) for name in names]


def taken(*names: str, wanted: str = "") -> str:
    return choose("org/repo", files(*names), wanted).variant.files[0].path


@pytest.mark.parametrize(
    ("path", "quantization"),
    [
        ("Llama-3.2-3B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("qwen2.5-7b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("Q6_K/model.gguf", "Q6_K"),
        ("model-IQ3_XXS.gguf", "IQ3_XXS"),
        ("model-fp16.gguf", "F16"),
        ("BF16/model-BF16-00001-of-00002.gguf", "BF16"),
        ("toy.gguf", ""),
    ],
)
def test_a_files_name_tells_its_quantization(path: str, quantization: str) -> None:
    assert quantization_of(path) == quantization


@pytest.mark.parametrize(
    "path",
    [
        "mmproj-model-f16.gguf",
        "model.mmproj-f16.gguf",
        "model.imatrix.gguf",
        "imatrix.gguf",
        "model-draft-Q4_0.gguf",
        "ggml-vocab-llama.gguf",
        "README.md",
        "model.safetensors",
    ],
)
def test_what_goes_with_a_model_is_none(path: str) -> None:
    assert not is_model_file(path)


def test_q4_k_m_is_taken_unless_another_is_asked_for() -> None:
    names = ("a-Q8_0.gguf", "a-Q4_K_M.gguf", "a-Q2_K.gguf", "mmproj-a-f16.gguf")
    assert taken(*names) == "a-Q4_K_M.gguf"
    assert taken(*names, wanted="q8_0") == "a-Q8_0.gguf"
    assert taken("a-UD-Q4_K_XL.gguf", "a-Q2_K.gguf", wanted="Q4_K_XL") == "a-UD-Q4_K_XL.gguf"


def test_without_q4_k_m_the_nearest_is_taken_and_it_says_so() -> None:
    choice = choose("org/repo", files("a-F16.gguf", "a-Q5_K_M.gguf", "a-Q8_0.gguf"))
    assert choice.variant.quantization == "Q5_K_M"
    assert choice.why == "there is no Q4_K_M, and this comes nearest"


def test_a_quantization_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(ModelNotFound, match="no quantization Q9; it has Q4_K_M, Q8_0"):
        choose("org/repo", files("a-Q8_0.gguf", "a-Q4_K_M.gguf"), "Q9")


def test_a_repository_of_projectors_holds_no_model() -> None:
    with pytest.raises(ModelNotFound, match="holds no GGUF model"):
        choose("org/repo", files("mmproj-f16.gguf"))


def test_a_smaller_one_is_taken_where_memory_is_short() -> None:
    listed = [
        HubFile("a-Q4_K_M.gguf", 9 * GB),
        HubFile("a-Q3_K_M.gguf", 7 * GB),
        HubFile("a-Q2_K.gguf", 5 * GB),
        HubFile("a-IQ1_S.gguf", 2 * GB),
    ]
    choice = choose("org/repo", listed, budget_bytes=8 * GB)
    assert choice.variant.quantization == "Q3_K_M"
    assert choice.why == "Q4_K_M with 9.0 GB does not fit into 8.0 GB of free memory"
    assert choose("org/repo", listed, budget_bytes=20 * GB).variant.quantization == "Q4_K_M"
    assert choose("org/repo", listed, budget_bytes=3 * GB).variant.quantization == "Q4_K_M"


def test_all_shards_of_a_split_are_one_model_in_order() -> None:
    shard = "a-Q4_K_M-{:05d}-of-00003.gguf"
    (variant,) = variants(files(*(shard.format(n) for n in (3, 1, 2))))
    assert [file.path for file in variant.files] == [shard.format(n) for n in (1, 2, 3)]
    assert (variant.quantization, variant.size) == ("Q4_K_M", 3 * GB)


def test_a_split_with_a_shard_missing_is_refused_by_the_shards_name() -> None:
    names = ("a-Q4_K_M-00001-of-00003.gguf", "a-Q4_K_M-00003-of-00003.gguf")
    with pytest.raises(FilesMissing, match=r"a-Q4_K_M-00002-of-00003\.gguf is missing"):
        choose("org/repo", files(*names))


def test_an_incomplete_split_gives_way_to_a_whole_file() -> None:
    choice = choose("org/repo", files("a-Q4_K_M-00001-of-00003.gguf", "a-Q4_0.gguf"))
    assert choice.variant.quantization == "Q4_0"
    assert choice.why == "Q4_K_M is not complete there, and this comes nearest"


def test_a_file_asked_for_by_its_path_is_taken() -> None:
    listed = files("a-Q4_K_M.gguf", "sub/a-Q6_K.gguf")
    assert choose("org/repo", listed, file="sub/a-Q6_K.gguf").variant.quantization == "Q6_K"
    with pytest.raises(ModelNotFound, match=r"no model file b\.gguf"):
        choose("org/repo", listed, file="b.gguf")
