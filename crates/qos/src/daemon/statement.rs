//! What a program states of itself, within the bounds of the policy.
//!
//! A class without `join` takes statements that lower what is kept free for the program: a longer target, a
//! smaller message. With `join` they may raise it. Who may write the policy decides so, class by class.

use crate::law::{ClassSettings, transfer_s};
use crate::need::message_need_bit_per_s;
use crate::policy::{Class, SIZE_MAX, TARGET_MAX};

/// Least stated target, in seconds: no network control reacts faster.
const TARGET_MIN_S: f64 = 0.001;

/// Size and target of the messages of one program.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statement {
    /// Index of the class in the policy; `None`: the one that its sockets match.
    pub class: Option<usize>,
    pub size_bytes: Option<f64>,
    pub target_s: Option<f64>,
}

impl Statement {
    /// Whether it differs from what the class has.
    pub fn changes_need(&self) -> bool {
        self.size_bytes.is_some() || self.target_s.is_some()
    }

    /// What is in force for a program of this urgent class; `None` for bulk. `learned`: size of the class's
    /// messages, in bytes, if the policy has none.
    pub fn in_force(&self, class: &Class, learned: Option<f64>) -> Option<InForce> {
        let own_s = class.target?.s();
        let overhead_s = class.overhead.s();
        let least_s = if class.join { TARGET_MIN_S } else { own_s };
        let target_s =
            self.target_s.map_or(own_s, |target_s| target_s.max(least_s).min(TARGET_MAX.s().max(own_s)));
        let left_s = transfer_s(target_s, overhead_s);
        let own_bytes = class.size.map(|size| size.bytes() as f64).or(learned);
        let most_bytes = match (class.join, class.ceiling) {
            (false, _) => own_bytes.unwrap_or(0.0),
            (true, None) => SIZE_MAX.bytes() as f64,
            // No connection needs more than the class may have, or has without a statement.
            (true, Some(ceiling)) => {
                let own_transfer_s = transfer_s(own_s, overhead_s);
                let own_need = message_need_bit_per_s(own_bytes.unwrap_or(0.0), own_transfer_s);
                own_need.max(ceiling.bit_per_s() as f64) / message_need_bit_per_s(1.0, left_s)
            }
        };
        let message_bytes = self.size_bytes.or(own_bytes).map(|bytes| bytes.min(most_bytes));
        Some(InForce { message_bytes: message_bytes.unwrap_or(0.0), target_s, transfer_s: left_s })
    }
}

/// What the law uses of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InForce {
    /// 0: not known yet.
    pub message_bytes: f64,
    /// Longest response time, in seconds.
    pub target_s: f64,
    /// What the overhead of the policy leaves of it.
    pub transfer_s: f64,
}

impl InForce {
    pub fn need_bit_per_s(&self) -> f64 {
        message_need_bit_per_s(self.message_bytes, self.transfer_s)
    }

    /// For a program of this class of the policy.
    pub fn settings(&self, class: usize) -> ClassSettings {
        ClassSettings::Program { class, target_s: self.transfer_s, message_bytes: self.message_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use proptest::prelude::*;

    fn class(more: &str) -> Class {
        let text = format!(
            "[bottleneck]\ninterface = 'eth0'\ncapacity = '50Mbit/s'\n[[class]]\nname = 'alarm'\n\
             match = {{ process = 'alarmd' }}\npriority = 1\n{more}\n"
        );
        Policy::parse(&text).unwrap().classes.remove(0)
    }

    fn stated(bytes: f64, target_s: f64) -> Statement {
        Statement { class: None, size_bytes: Some(bytes), target_s: Some(target_s) }
    }

    #[test]
    fn without_join_a_statement_only_lowers_the_need() {
        let class = class("target = '500ms'\nsize = '250kB'\noverhead = '100ms'");
        let own = Statement::default().in_force(&class, None).unwrap();
        assert_eq!(own, InForce { message_bytes: 250e3, target_s: 0.5, transfer_s: 0.4 });
        assert!((own.need_bit_per_s() - 2e6 / (0.85 * 0.4)).abs() < 1.0);
        assert_eq!(stated(1e6, 0.1).in_force(&class, None), Some(own));
        let less = stated(1e3, 2.0).in_force(&class, None).unwrap();
        assert_eq!(less, InForce { message_bytes: 1e3, target_s: 2.0, transfer_s: 1.9 });
    }

    #[test]
    fn without_join_a_learned_size_bounds_the_stated_one() {
        let class = class("target = '500ms'");
        let bytes = |learned| stated(1e6, 0.5).in_force(&class, learned).unwrap().message_bytes;
        assert_eq!((bytes(None), bytes(Some(5e3)), bytes(Some(5e6))), (0.0, 5e3, 1e6));
    }

    #[test]
    fn with_join_a_statement_may_raise_the_need_up_to_the_ceiling() {
        let open = class("target = '500ms'\njoin = true");
        let force = stated(1e6, 0.1).in_force(&open, None).unwrap();
        assert_eq!(force, InForce { message_bytes: 1e6, target_s: 0.1, transfer_s: 0.1 });
        assert_eq!(stated(1e6, 1e-9).in_force(&open, None).unwrap().target_s, 0.001);
        let capped = class("target = '500ms'\nceiling = '10Mbit/s'\njoin = true");
        let force = stated(1e9, 0.1).in_force(&capped, None).unwrap();
        assert!((force.need_bit_per_s() - 10e6).abs() < 1.0, "{force:?}");
        // A target alone raises the need no further, with the size of the class.
        let sized = Class { size: Some(base::units::ByteSize::from_bytes(250_000)), ..capped };
        let tight = Statement { target_s: Some(0.001), ..Statement::default() };
        let force = tight.in_force(&sized, None).unwrap();
        assert!((force.need_bit_per_s() - 10e6).abs() < 1.0, "{force:?}");
    }

    #[test]
    fn bulk_has_no_need() {
        assert_eq!(stated(1e6, 0.1).in_force(&class("join = true"), None), None);
    }

    proptest! {
        #[test]
        fn any_statement_is_finite_and_within_the_policy(
            size in 1u64.., target_us in 1u64.., join in any::<bool>(), learned in 0.0f64..1e12,
        ) {
            let class = class(&format!("target = '500ms'\noverhead = '1s'\njoin = {join}"));
            let statement = stated(size as f64, target_us as f64 * 1e-6);
            let own = Statement::default().in_force(&class, Some(learned)).unwrap();
            let force = statement.in_force(&class, Some(learned)).unwrap();
            prop_assert!(force.need_bit_per_s().is_finite() && force.transfer_s > 0.0);
            prop_assert!(join || force.need_bit_per_s() <= own.need_bit_per_s());
        }
    }
}
