//! Floor 1: hosts working together behind one bus.
