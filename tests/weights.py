"""Tiny models with random weights, one for each kind of memory a KV cache has.

Weights are float32: no activation is quantized, so two right computations of the same tokens differ
by rounding only (about 1e-3), and a wrong one by far more. The vocabulary is the 256 bytes, one
word piece and two control tokens, in the byte-level BPE that GPT-2 uses.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import gguf
import gguf.quants
import numpy as np

Kind = Literal["llama", "gemma3", "mamba", "lfm2", "qwen3next", "bert"]

CONTEXT = 4096
WINDOW = 32
_WIDTH, _LAYERS, _FEED, _HEADS, _KV_HEADS, _HEAD = 64, 4, 128, 4, 2, 16
_EXPERTS = 2
_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)


def _byte_characters() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


class _Maker:
    def __init__(self, path: Path, kind: Kind, seed: int) -> None:
        self.writer = gguf.GGUFWriter(path, kind)
        self.rng = np.random.default_rng(seed)

    def matrix(self, name: str, rows: int, columns: int) -> None:
        values = self.rng.standard_normal((rows, columns)) * columns**-0.5
        self.writer.add_tensor(name, values.astype(np.float32))

    def stack(self, name: str, rows: int, columns: int) -> None:
        values = self.rng.standard_normal((_EXPERTS, rows, columns)) * columns**-0.5
        self.writer.add_tensor(name, values.astype(np.float32))

    def vector(self, name: str, size: int, value: float = 1.0) -> None:
        self.writer.add_tensor(name, np.full(size, value, np.float32))

    def layer_norm(self, name: str) -> None:
        self.vector(name + ".weight", _WIDTH)
        self.vector(name + ".bias", _WIDTH, 0.0)

    def vocabulary(self, marks: Sequence[str]) -> int:
        letters = _byte_characters()
        tokens = [*letters, "he", "<|im_start|>", "<|im_end|>"]
        tokens += marks
        types = [gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * (2 + len(marks))
        w = self.writer
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("default")
        w.add_token_list(tokens)
        w.add_token_types(types)
        w.add_token_merges(["h e"])
        w.add_bos_token_id(257)
        w.add_eos_token_id(258)
        w.add_add_bos_token(False)
        w.add_chat_template(_CHATML)
        return len(tokens)

    def attention(self, block: str, *, norms: bool, gated: bool = False) -> None:
        self.matrix(block + "attn_q.weight", (1 + gated) * _HEADS * _HEAD, _WIDTH)
        self.matrix(block + "attn_k.weight", _KV_HEADS * _HEAD, _WIDTH)
        self.matrix(block + "attn_v.weight", _KV_HEADS * _HEAD, _WIDTH)
        self.matrix(block + "attn_output.weight", _WIDTH, _HEADS * _HEAD)
        if norms:
            self.vector(block + "attn_q_norm.weight", _HEAD)
            self.vector(block + "attn_k_norm.weight", _HEAD)

    def feed_forward(self, block: str) -> None:
        self.vector(block + "ffn_norm.weight", _WIDTH)
        self.matrix(block + "ffn_gate.weight", _FEED, _WIDTH)
        self.matrix(block + "ffn_up.weight", _FEED, _WIDTH)
        self.matrix(block + "ffn_down.weight", _WIDTH, _FEED)

    def expert_shape(self) -> None:
        """All experts are used: a choice of some would hang on a rounding where two are near."""
        self.writer.add_expert_count(_EXPERTS)
        self.writer.add_expert_used_count(_EXPERTS)
        self.writer.add_expert_feed_forward_length(_FEED // 2)
        self.writer.add_expert_shared_feed_forward_length(_FEED // 2)

    def experts(self, block: str) -> None:
        wide, narrow = (_FEED // 2, _WIDTH), (_WIDTH, _FEED // 2)
        self.matrix(block + "ffn_gate_inp.weight", _EXPERTS, _WIDTH)
        self.vector(block + "ffn_gate_inp_shexp.weight", _WIDTH, 0.1)
        for name, (rows, columns) in (("gate", wide), ("up", wide), ("down", narrow)):
            self.stack(f"{block}ffn_{name}_exps.weight", rows, columns)
            self.matrix(f"{block}ffn_{name}_shexp.weight", rows, columns)


def write_model(path: Path, kind: Kind, seed: int = 0, marks: Sequence[str] = ()) -> Path:
    """Write a model of the kind to `path`, its vocabulary with these control tokens more."""
    maker = _Maker(path, kind, seed)
    w = maker.writer
    w.add_name(f"random {kind}")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(_WIDTH)
    w.add_block_count(_LAYERS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_license("apache-2.0")
    size = maker.vocabulary(marks)
    w.add_vocab_size(size)
    maker.matrix("token_embd.weight", size, _WIDTH)
    if kind != "bert":
        maker.vector("token_embd_norm.weight" if kind == "lfm2" else "output_norm.weight", _WIDTH)
    _KINDS[kind](maker)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def _attention_shape(w: gguf.GGUFWriter, kv_heads: int | list[int]) -> None:
    w.add_feed_forward_length(_FEED)
    w.add_head_count(_HEADS)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(_HEAD)
    w.add_value_length(_HEAD)
    w.add_rope_dimension_count(_HEAD)
    w.add_rope_freq_base(10000.0)


def _llama(maker: _Maker) -> None:
    _attention_shape(maker.writer, _KV_HEADS)
    for i in range(_LAYERS):
        block = f"blk.{i}."
        maker.vector(block + "attn_norm.weight", _WIDTH)
        maker.attention(block, norms=False)
        maker.feed_forward(block)


def _gemma3(maker: _Maker) -> None:
    _attention_shape(maker.writer, _KV_HEADS)
    maker.writer.add_sliding_window(WINDOW)
    maker.writer.add_sliding_window_pattern([i % 2 == 0 for i in range(_LAYERS)])
    for i in range(_LAYERS):
        block = f"blk.{i}."
        maker.vector(block + "attn_norm.weight", _WIDTH)
        maker.vector(block + "post_attention_norm.weight", _WIDTH)
        maker.vector(block + "post_ffw_norm.weight", _WIDTH)
        maker.attention(block, norms=True)
        maker.feed_forward(block)


def _mamba(maker: _Maker) -> None:
    inner, state, conv, rank = 2 * _WIDTH, 16, 4, 4
    w = maker.writer
    w.add_feed_forward_length(0)
    w.add_head_count(0)
    w.add_ssm_conv_kernel(conv)
    w.add_ssm_inner_size(inner)
    w.add_ssm_state_size(state)
    w.add_ssm_time_step_rank(rank)
    # slow: a state that forgets within a few tokens would hide that it was the wrong one
    decay = -0.03 * np.tile(np.arange(1, state + 1, dtype=np.float32), (inner, 1))
    for i in range(_LAYERS):
        block = f"blk.{i}."
        maker.vector(block + "attn_norm.weight", _WIDTH)
        maker.matrix(block + "ssm_in.weight", 2 * inner, _WIDTH)
        maker.matrix(block + "ssm_conv1d.weight", inner, conv)
        maker.vector(block + "ssm_conv1d.bias", inner, 0.0)
        maker.matrix(block + "ssm_x.weight", rank + 2 * state, inner)
        maker.matrix(block + "ssm_dt.weight", inner, rank)
        maker.vector(block + "ssm_dt.bias", inner, -2.0)
        w.add_tensor(block + "ssm_a", decay)
        maker.vector(block + "ssm_d", inner)
        maker.matrix(block + "ssm_out.weight", _WIDTH, inner)


def _lfm2(maker: _Maker) -> None:
    w = maker.writer
    _attention_shape(w, [0 if i % 2 == 0 else _KV_HEADS for i in range(_LAYERS)])
    w.add_shortconv_l_cache(3)
    for i in range(_LAYERS):
        block = f"blk.{i}."
        maker.vector(block + "attn_norm.weight", _WIDTH)
        maker.feed_forward(block)
        if i % 2:
            maker.attention(block, norms=True)
        else:
            maker.matrix(block + "shortconv.conv.weight", _WIDTH, 3)
            maker.matrix(block + "shortconv.in_proj.weight", 3 * _WIDTH, _WIDTH)
            maker.matrix(block + "shortconv.out_proj.weight", _WIDTH, _WIDTH)


def _qwen3next(maker: _Maker) -> None:
    """Gated delta net and gated attention by turns, each with experts."""
    w = maker.writer
    state, key_heads, value_heads, conv = 16, 2, 4, 4
    keys, values = state * key_heads, state * value_heads
    _attention_shape(w, _KV_HEADS)
    w.add_full_attention_interval(2)
    w.add_ssm_conv_kernel(conv)
    w.add_ssm_inner_size(values)
    w.add_ssm_state_size(state)
    w.add_ssm_time_step_rank(value_heads)
    w.add_ssm_group_count(key_heads)
    maker.expert_shape()
    for i in range(_LAYERS):
        block = f"blk.{i}."
        maker.vector(block + "attn_norm.weight", _WIDTH)
        maker.vector(block + "post_attention_norm.weight", _WIDTH)
        maker.experts(block)
        if i % 2:
            maker.attention(block, norms=True, gated=True)
            continue
        maker.matrix(block + "attn_qkv.weight", 2 * keys + values, _WIDTH)
        maker.matrix(block + "attn_gate.weight", values, _WIDTH)
        maker.matrix(block + "ssm_conv1d.weight", 2 * keys + values, conv)
        maker.matrix(block + "ssm_ba.weight", 2 * value_heads, _WIDTH)
        maker.vector(block + "ssm_dt.bias", value_heads, -2.0)
        maker.vector(block + "ssm_a", value_heads, -0.1)  # slow, as mamba's
        maker.vector(block + "ssm_norm.weight", state)
        maker.matrix(block + "ssm_out.weight", _WIDTH, values)


def _bert(maker: _Maker) -> None:
    """An encoder: it looks both ways, writes nothing, and averages."""
    w = maker.writer
    w.add_feed_forward_length(_FEED)
    w.add_head_count(_HEADS)
    w.add_layer_norm_eps(1e-5)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    w.add_token_type_count(2)
    maker.matrix("token_types.weight", 2, _WIDTH)
    maker.matrix("position_embd.weight", CONTEXT, _WIDTH)
    maker.layer_norm("token_embd_norm")
    for i in range(_LAYERS):
        block = f"blk.{i}."
        for name, rows, columns in (
            *((f"attn_{part}", _WIDTH, _WIDTH) for part in ("q", "k", "v", "output")),
            ("ffn_up", _FEED, _WIDTH),
            ("ffn_down", _WIDTH, _FEED),
        ):
            maker.matrix(f"{block}{name}.weight", rows, columns)
            maker.vector(f"{block}{name}.bias", rows, 0.01)
        maker.layer_norm(block + "attn_output_norm")
        maker.layer_norm(block + "layer_output_norm")


_KINDS: dict[Kind, Callable[[_Maker], None]] = {
    "llama": _llama,
    "gemma3": _gemma3,
    "mamba": _mamba,
    "lfm2": _lfm2,
    "qwen3next": _qwen3next,
    "bert": _bert,
}


def write_unquantized(source: Path, target: Path) -> None:
    """Copy a GGUF with every tensor turned to float32."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float32, copy=False))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
