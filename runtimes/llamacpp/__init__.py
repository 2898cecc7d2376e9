"""llama.cpp behind the executor protocol."""
