//! Decisions of the builders, without I/O: which builder begins an event, which sources may send, and which
//! orders are repeated.

mod credit;
mod credit_search;
mod retransmit_queue;
mod trigger_scheduler;

pub(crate) use credit::{CreditManager, GrantScope};
pub(crate) use credit_search::{CreditSearch, Round, RoundStats};
pub(crate) use retransmit_queue::{RetransmitAction, RetransmitQueue};
pub(crate) use trigger_scheduler::{Assignment, Barrier, SchedulerPlan, TriggerScheduler};
