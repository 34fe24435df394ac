"""Where memories are kept: one module or package a kind of store, all under one contract."""
