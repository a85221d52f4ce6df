//! Content: the MPEG transport streams that the server holds, and their frame index.
