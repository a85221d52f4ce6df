//! Floor 0: the vocabulary of measurement as plain data and pure functions; no I/O.
