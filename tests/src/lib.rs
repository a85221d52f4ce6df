//! Helpers that the whole-program tests share.
