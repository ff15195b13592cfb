"""The llama.cpp engine, on the low-level API of llama-cpp-python. Imported on first use only."""
