//! Floor 1: the kernel. Sockets, clocks, threads, /proc, cgroups, mounts, namespaces and the undo journal; the only room with unsafe code.
