//! Floor 2: the lab. Hosts, switches, links and disks made on one machine, for tests and for published set-ups.
