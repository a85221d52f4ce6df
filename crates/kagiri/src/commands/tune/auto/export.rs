//! Accepted settings in forms that others read.

use base::plan::Plan;
use clap::ValueEnum;
use tune::export::{commands, sysctl_d};

use super::answer::{Answer, Conclusion};
use super::trials::{Candidate, with_candidates};
use crate::exit::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Export {
    /// Plan that measures them again beside the current settings
    Plan,
    /// File for /etc/sysctl.d
    #[value(name = "sysctl.d")]
    SysctlD,
    /// Commands for a shell
    Commands,
}

impl Export {
    /// `plan`: with the current settings as its only variant.
    /// Errors: no settings were accepted: an empty file would look like a result.
    pub fn text(self, plan: &Plan, answer: &Answer, blocks: u32) -> Result<String, Failure> {
        let settings = match (answer.conclusion, &answer.winner) {
            (Conclusion::Better, Some(settings)) => settings.clone(),
            _ => return Err(Failure::runtime("nothing is exported: no settings were accepted")),
        };
        let pairs: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match self {
            Self::Commands => Ok(commands(&pairs)),
            Self::SysctlD => {
                let runs = answer.runs.join(", ");
                let origin = format!("Accepted by 'kagiri tune auto' for {} (runs {runs})", answer.goal);
                Ok(sysctl_d(&pairs, &origin))
            }
            Self::Plan => {
                let winner = Candidate { settings };
                with_candidates(plan, std::slice::from_ref(&winner), blocks).to_toml().map_err(Failure::usage)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use run::registry::BUILT_IN;
    use tune::trials::Better;

    use super::super::answer::Diagnosis;
    use super::super::goal::Goal;
    use super::*;

    fn answer(conclusion: Conclusion) -> Answer {
        let goal = Goal { name: "response_p99_ms".into(), better: Better::Lower, guards: Vec::new() };
        let diagnosis = Diagnosis {
            sndbuf_limited_ratio: None,
            rwnd_limited_ratio: None,
            limits: Vec::new(),
            run: "r1".into(),
        };
        let wmem = ("net.ipv4.tcp_wmem".to_owned(), "4096 16384 1048576".to_owned());
        Answer {
            conclusion,
            winner: Some([wmem].into()),
            runs: vec!["r2".into(), "r3".into()],
            ..Answer::new(&goal, 1, diagnosis)
        }
    }

    #[test]
    fn accepted_settings_are_exported_and_others_are_not() {
        let plan = BUILT_IN.read_plan("workload = 'exchange'\n").unwrap();
        let text = |form: Export| form.text(&plan, &answer(Conclusion::Better), 8).unwrap();
        assert_eq!(text(Export::Commands), "sysctl -w net.ipv4.tcp_wmem='4096 16384 1048576'\n");
        let file = text(Export::SysctlD);
        assert!(file.starts_with("# Accepted by") && file.contains("r2, r3"), "{file}");
        assert!(file.ends_with("\nnet.ipv4.tcp_wmem = 4096 16384 1048576\n"), "{file}");
        let again = BUILT_IN.read_plan(&text(Export::Plan)).unwrap();
        assert_eq!((again.repeats, again.variants.len()), (16, 2));
        assert!(again.variants[0].tune.is_none(), "{again:?}");
        let tuned = again.variants[1].tune.as_ref().unwrap();
        assert_eq!(tuned.settings["net.ipv4.tcp_wmem"], "4096 16384 1048576");
        for conclusion in [Conclusion::NotConfirmed, Conclusion::WorseElsewhere, Conclusion::NoDifference] {
            assert!(Export::Commands.text(&plan, &answer(conclusion), 8).is_err(), "{conclusion:?}");
        }
    }
}
