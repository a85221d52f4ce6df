//! The embedded content server: HTTP/1.1 over zero-copy sends.
