//! Floor 3: the engine. Places parts, searches for the capacity, judges and explains.
