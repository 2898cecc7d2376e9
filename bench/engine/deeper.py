"""Write a model several times as deep that says the same: the copied layers add nothing.

With the original as its draft model (`runner serve deep.gguf --draft SMALL`) every guess that is
sure enough is right, which is the most that drafting can bring on this machine, for a pair of this
ratio of sizes; a real pair agrees less often.

    python bench/engine/deeper.py SMALL.gguf deep.gguf --times 4
"""

import argparse
import re
from pathlib import Path

import gguf
import numpy as np


def main() -> None:
    """Copy the metadata and the layers, then each layer again with its outputs zeroed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("source", type=Path)
    options.add_argument("target", type=Path)
    options.add_argument("--times", type=int, default=4)
    chosen = options.parse_args()
    reader = gguf.GGUFReader(chosen.source)
    architecture = str(reader.fields["general.architecture"].contents())
    count_key = f"{architecture}.block_count"
    layers = int(reader.fields[count_key].contents())
    writer = gguf.GGUFWriter(chosen.target, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        value = layers * chosen.times if field.name == count_key else field.contents()
        writer.add_key_value(field.name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        add(writer, tensor, tensor.name, tensor.data)
        layer = re.match(r"blk\.(\d+)\.(.*)", tensor.name)
        for again in range(1, chosen.times) if layer else ():
            silent = layer[2] in ("attn_output.weight", "ffn_down.weight")
            data = np.zeros_like(tensor.data) if silent else tensor.data
            add(writer, tensor, f"blk.{int(layer[1]) + again * layers}.{layer[2]}", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer: gguf.GGUFWriter, tensor: gguf.ReaderTensor, name: str, data: np.ndarray) -> None:
    writer.add_tensor(name, data, raw_shape=data.shape, raw_dtype=tensor.tensor_type)


if __name__ == "__main__":
    main()
