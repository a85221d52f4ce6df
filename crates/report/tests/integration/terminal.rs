//! What a terminal shows.

use report::html::Extras;
use report::terminal::{Entry, Style, brief, comparison, differences, explanation, list_table, summary};

use base::doubt::Doubt;
use base::outcome::{
    Capacity, Ceiling, Certainty, Evidence, Limit, Phase, Resource, Run, Trial, VariantOutcome,
};
use base::verdict::Verdict;

use crate::simulate::{self, Server};

const PLAIN: Style = Style { colour: false, width: 80, unicode: true };

#[test]
fn summaries_of_all_kinds_of_runs() {
    for (name, run) in simulate::all() {
        insta::assert_snapshot!(
            format!("summary_{name}"),
            summary(&run, &Extras::default(), PLAIN, Some("/tmp/report.html"))
        );
    }
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    for (name, mut run) in simulate::all() {
        run.name = "a name that is much longer than any terminal is wide ".repeat(4);
        for variant in &mut run.variants {
            variant.limit.evidence.extend(variant.limit.evidence.clone());
        }
        for width in [40, 60, 80, 132] {
            let text = summary(&run, &Extras::default(), Style { width, ..PLAIN }, None);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{name} at {width}: {widest:?}\n{text}");
        }
    }
}

#[test]
fn brief_answer_fits_15_lines_of_80_columns() {
    for (name, mut run) in simulate::all() {
        let page = Some("/tmp/report.html");
        let wide = Style { width: 200, ..PLAIN };
        insta::assert_snapshot!(format!("brief_{name}"), brief(&run, &Extras::default(), wide, page));
        let variants = run.variants.clone();
        for number in 0..30 {
            for variant in &variants {
                let name = format!("{} number {number} with a very long name", variant.name);
                run.variants.push(VariantOutcome { name, ..variant.clone() });
            }
        }
        run.doubts.extend(run.doubts.clone().into_iter().cycle().take(50 * run.doubts.len()));
        run.requirements
            .extend(run.requirements.clone().into_iter().cycle().take(10 * run.requirements.len()));
        for all in [true, false] {
            if !all {
                run.variants.truncate(1);
            }
            let text = brief(&run, &Extras::default(), wide, page);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(text.lines().count() <= 15 && widest <= Some(80), "{name}:\n{text}");
            assert!(text.ends_with("Report: /tmp/report.html\n"), "{name}:\n{text}");
        }
    }
}

#[test]
fn colours_and_unicode_follow_the_style() {
    let run = simulate::interrupted();
    let plain = summary(&run, &Extras::default(), Style { unicode: false, ..PLAIN }, None);
    assert!(plain.is_ascii() && !plain.contains('\u{1b}'), "{plain}");
    let coloured =
        summary(&simulate::cpu_limited(), &Extras::default(), Style { colour: true, ..PLAIN }, None);
    assert!(coloured.contains("\u{1b}[32mpass\u{1b}[0m 3/3") || coloured.contains("\u{1b}[32mpass\u{1b}[0m"));
    let mut bare = coloured;
    for code in ["1", "2", "31", "32", "33", "0"] {
        bare = bare.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(
        bare,
        summary(&simulate::cpu_limited(), &Extras::default(), PLAIN, None),
        "colour changes no character"
    );
}

#[test]
fn load_with_contradicting_trials_is_not_green() {
    let mut run = simulate::cpu_limited();
    let at_five = |trial: &&mut Trial| trial.load == 5.0;
    run.trials.iter_mut().filter(at_five).skip(1).for_each(|trial| trial.verdict = Verdict::Invalid);
    let coloured = summary(&run, &Extras::default(), Style { colour: true, ..PLAIN }, None);
    assert!(coloured.contains("\u{1b}[33mpass\u{1b}[0m 1/3"), "{coloured}");
    assert!(coloured.contains("\u{1b}[32mpass\u{1b}[0m 2/2"), "{coloured}");
    let page = report::html::page(&run, &Extras::default());
    assert!(page.contains("<span class=\"v v-mixed\">pass 1/3</span>"), "{page}");
    assert!(page.contains("<span class=\"v v-pass\">pass 2/2</span>"), "{page}");
}

#[test]
fn slope_below_zero_or_of_two_loads_is_no_cost() {
    let mut run = simulate::cpu_limited();
    let all = &mut run.variants[0].saturation;
    for (resource, cost, interval) in
        [(Resource::Cpu, -0.3, Some([-0.5, -0.1])), (Resource::Disk, 25e6, None)]
    {
        let one = all.get_mut(&resource).unwrap();
        (one.cost_per_load, one.cost_interval, one.saturates_at) = (cost, interval, Some(99.0));
    }
    let text = summary(&run, &Extras::default(), PLAIN, None);
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("cpu ").contains("no measurable cost") && !row("cpu ").contains("99"), "{text}");
    assert!(!row("disk ").contains("25 Mbit/s") && !row("disk ").contains("99"), "{text}");
}

/// What `kagiri explain` prints first of a table.
fn first_line(outcome: VariantOutcome, largest: f64) -> String {
    let text = explanation(&outcome, Some(largest), &[], PLAIN);
    text.lines().next().unwrap().to_owned()
}

#[test]
fn only_a_load_that_passed_is_carried() {
    let variant = simulate::cpu_limited().variants.swap_remove(0);
    let with = |value, interval, passes, failures_above, predicted| {
        let unit = "users".to_owned();
        let capacity = Capacity { value, unit, interval, passes, failures_above };
        first_line(VariantOutcome { capacity, predicted, doubts: Vec::new(), ..variant.clone() }, 80.0)
    };
    let open = [None, None];
    assert_eq!(
        with(Some(99.0), open, 0, 0, Some(99.0)),
        "Predicted capacity: about 99 users, beyond the largest load measured (80 users)."
    );
    assert_eq!(with(Some(70.0), open, 0, 0, Some(70.0)), "Predicted capacity: 70 users.");
    assert_eq!(
        with(Some(70.0), [Some(70.0), Some(80.0)], 0, 0, None),
        "Predicted capacity: from 70 users to less than 80 users, where usage or latency"
    );
    assert_eq!(with(Some(70.0), [Some(70.0), Some(79.0)], 2, 1, None), "Carries 70 users.");
    assert_eq!(
        with(Some(60.0), [Some(60.0), None], 1, 0, Some(70.0)),
        "Carries at least 60 users; predicted from costs and ceilings: 70 users."
    );
    assert!(with(None, open, 0, 1, Some(99.0)).starts_with("Capacity unknown: the smallest load"));
    assert!(with(None, open, 0, 0, None).starts_with("Capacity unknown: the table has no verdict"));
}

#[test]
fn witness_against_a_limit_stands_with_it() {
    let mut run = simulate::cpu_limited();
    let lost = Evidence::counted(Resource::Cpu, "at 6 streams the hypervisor took 51 % of a core");
    run.variants[0].limit = Limit {
        resource: Resource::Network,
        certainty: Certainty::Predicted,
        evidence: vec![
            Evidence::counted(Resource::Network, "at 6 streams network use was 98 % of its ceiling"),
            lost.with("steal_percent", 51.0),
        ],
    };
    let text = summary(&run, &Extras::default(), Style { width: 200, ..PLAIN }, None);
    let said = "Probably limited by network: at 6 streams network use was 98 % of its ceiling; \
                but at 6 streams the hypervisor took 51 % of a core.";
    assert!(text.contains(said), "{text}");
}

#[test]
fn two_repetitions_tell_nothing_rather_than_no_difference() {
    let with = |id: &str, values: [f64; 2]| {
        let mut run = simulate::cpu_limited();
        run.run = id.into();
        let known = run.variants[0].capacity.clone();
        let capacity = |value: f64| Capacity {
            value: Some(value),
            interval: [Some(value), Some(value)],
            ..known.clone()
        };
        run.variants[0].repetitions = values.map(capacity).to_vec();
        run.variants[0].capacity = capacity(values.iter().sum::<f64>() / 2.0);
        run
    };
    let compared = store::compare::compare(&[with("a", [90.0, 110.0]), with("b", [110.0, 151.4])], &[]);
    let text = differences(&compared, Style { width: 200, ..PLAIN });
    assert!(text.contains("+30.7 %: not enough repetitions to tell; use --repeat 5"), "{text}");
    assert!(!text.contains("no difference"), "{text}");
}

#[test]
fn escape_sequences_in_names_do_not_reach_the_terminal() {
    let mut run = simulate::several();
    run.name = "\u{1b}[2Jwiped".into();
    run.variants[0].name = "\u{1b}]0;title\u{7}".into();
    run.failure = Some("\u{1b}[31m".into());
    let text = summary(&run, &Extras::default(), PLAIN, Some("/tmp/\u{1b}[0m"));
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text}");
}

#[test]
fn several_runs_side_by_side() {
    let runs = simulate::all();
    let entries: Vec<_> = runs.iter().map(|(_, run)| Entry::from(run)).collect();
    insta::assert_snapshot!("list", list_table(&entries, Style { width: 120, ..PLAIN }));
    let pair = [&runs[0].1, &runs[1].1];
    insta::assert_snapshot!("comparison", comparison(&pair, Style { width: 120, ..PLAIN }));
    assert_eq!(comparison(&[], PLAIN), "Nothing to compare.\n");
}

#[test]
fn differences_between_variants_and_between_runs() {
    let several = store::compare::compare(&[simulate::several()], &[]);
    insta::assert_snapshot!("differences_variants", differences(&several, PLAIN));
    let mut later = simulate::cpu_limited();
    later.run = "20260303-093000-c3d4".into();
    later.environment.insert("kernel".into(), "6.19.0\u{1b}[2J".into());
    let runs = store::compare::compare(&[simulate::cpu_limited(), later], &[]);
    let text = differences(&runs, PLAIN);
    assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("differences_runs", text);
}

/// A run of one load that ended before any load failed.
fn open_run(loads: &'static [(u32, Phase)], most: f64) -> Run {
    let mut run = simulate::run("open", &[Server { loads, ..simulate::CPU_LIMITED }]);
    let variant = &mut run.variants[0];
    let capacity = Capacity { value: Some(most), interval: [Some(most), None], ..variant.capacity.clone() };
    (variant.repetitions, variant.capacity) = (vec![capacity.clone()], capacity);
    variant.limit = Limit { resource: Resource::None, certainty: Certainty::Predicted, evidence: Vec::new() };
    run
}

#[test]
fn lower_bounds_and_runs_without_common_load_are_not_comparable() {
    let runs =
        [open_run(&[(3, Phase::Single)], 3.0), open_run(&[(1, Phase::Search), (2, Phase::Search)], 2.0)];
    let compared = store::compare::compare(&runs, &[]);
    assert_eq!(compared.pairs[0].capacity.reason.as_deref(), Some("both capacities are lower bounds"));
    let text = differences(&compared, Style { width: 200, ..PLAIN });
    for said in [
        "Capacity: at least 2 streams (n = 1) against at least 3 streams (n = 1): not comparable (both are \
         lower bounds)",
        "Limit:    none found",
        "No number can be compared: the two have no judged load in common",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    assert!(!text.contains("none against none") && !text.contains("-33"), "{text}");
}

#[test]
fn unknown_ceilings_are_one_doubt_and_sources_are_complete() {
    let mut run = simulate::cpu_limited();
    let source = "calibrated by this survey on a day on which nothing else ran on the host";
    let variant = &mut run.variants[0];
    let cpu = variant.saturation.get_mut(&Resource::Cpu).unwrap();
    cpu.ceiling = Some(Ceiling { value: 75.0, source: source.into() });
    variant.doubts = ["disk", "network", "memory"]
        .map(|name| Doubt::CeilingUnknown { resource: name.into() }.into())
        .to_vec();
    let text = summary(&run, &Extras::default(), PLAIN, None);
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("Doubt: the ceilings of disk, network and memory are unknown; give them with"));
    assert_eq!(joined.matches("--ceiling disk").count(), 1, "{text}");
    assert!(joined.contains(source), "{text}");
}

#[test]
fn single_load_is_not_reported_as_search() {
    let mut run = open_run(&[(3, Phase::Single)], 3.0);
    run.variants[0].doubts = vec![
        Doubt::FewLoads { loads: 1 }.into(),
        Doubt::CapacityIsLowerBound { reason: "no load failed".into() }.into(),
        Doubt::SingleRepetition.into(),
    ];
    let text = summary(&run, &Extras::default(), PLAIN, None);
    assert!(text.starts_with("Carried 3 streams of 25 Mbit/s in a single trial.\n"), "{text}");
    assert!(
        text.contains("Capacity: not searched, because one load") && !text.contains("Predicted capacity"),
        "{text}"
    );
    assert!(text.contains("measured once") && !text.contains("lower bound"), "{text}");
}

#[test]
fn short_answer_has_one_doubt_for_variants_that_share_its_kind() {
    let mut run = simulate::several();
    run.doubts = vec![Doubt::Interrupted.into()];
    for (variant, percent) in run.variants.iter_mut().zip([20.0, 90.0]) {
        let far = Doubt::FarPrediction { predicted: 545.0, greatest: 20.0 };
        variant.doubts = vec![Doubt::NoisyNeighbour { other_cpu_percent: percent }.into(), far.into()];
    }
    let (short, full) =
        (brief(&run, &Extras::default(), PLAIN, None), summary(&run, &Extras::default(), PLAIN, None));
    assert!(full.contains("predicted 545") && full.contains("was interrupted"), "{full}");
    assert!(full.contains("used 20 %") && full.contains("used 90 %"), "{full}");
    let doubts: Vec<&str> = short.lines().filter(|line| line.starts_with("Doubt: ")).collect();
    assert!(doubts.len() == 1 && doubts[0].contains("used 90 % of a core"), "{short}");
    assert!(short.contains("the worst is given") && !short.contains("545"), "{short}");
}
