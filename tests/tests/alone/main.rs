//! Whole-program tests that need the machine alone: they judge timings, fill the machine, or leave the
//! journal of a crash, which any other measurement would undo. A binary of their own, so that
//! `scripts/run-tests` runs nothing beside them.

mod crash;
mod disturbed;
mod ground_truth;
mod players;
mod survey;
