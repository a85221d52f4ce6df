//! What the page shows.

use std::path::Path;

use base::doubt::Doubt;
use base::metric::{Better, MetricSpec};
use base::outcome::{Phase, Run};
use base::workload::{Panel, Presentation};

use crate::simulate::{self, CPU_LIMITED, Server};
use report::html::{Extras, page};
use report::terminal::{Style, summary};

const SPECS: &[MetricSpec] = &[MetricSpec {
    name: "stalls",
    unit: "",
    better: Better::Lower,
    meaning: "how often a picture was missing when it was due",
}];
const EXTRAS: Extras = Extras {
    specs: SPECS,
    presentation: &Presentation {
        panels_below: &[Panel {
            title: "least slack",
            series: &["slack_s", "slack_min_s"],
            has_stalls: true,
        }],
        ..Presentation::DEFAULT
    },
    command: Some("kagiri stream --bitrate 25Mbit/s --max 8 --hold 10s"),
    program: None,
};

/// The words of a page, without its marks: what a snapshot of the figures' coordinates would drown.
fn words(page: &str) -> String {
    let body = page.split_once("<body>").unwrap().1;
    let mut text = String::new();
    let mut inside = false;
    for c in body.chars() {
        match c {
            '<' => inside = true,
            '>' => {
                inside = false;
                text.push('\n');
            }
            c if !inside => text.push(c),
            _ => {}
        }
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn pages_of_all_kinds_of_runs() {
    for (name, run) in simulate::all() {
        let page = page(&run, &EXTRAS);
        insta::assert_snapshot!(format!("page_{name}"), words(&page));
        // To be looked at: nothing reads it again.
        std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report_{name}.html")), page)
            .unwrap();
    }
}

#[test]
fn complete_page_with_figures() {
    let mut run = simulate::single();
    for series in &mut run.trials[0].series {
        series.at_s.truncate(6);
        series.values.truncate(6);
    }
    insta::assert_snapshot!("page_in_full", page(&run, &EXTRAS).replace("><", ">\n<"));
}

#[test]
fn wide_figures_are_drawn_for_narrow_screens_too() {
    for (name, run) in simulate::all() {
        let page = page(&run, &EXTRAS);
        let widths = |width: &str| page.matches(&format!("viewBox=\"0 0 {width} ")).count();
        assert!(widths("960") > 0 && widths("960") == widths("400"), "{name}");
        let mut ids: Vec<&str> =
            page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "{name}: an id is there twice");
    }
}

#[test]
fn limit_of_a_single_variant_is_said_at_the_top_only() {
    let run = simulate::cpu_limited();
    let words = words(&page(&run, &EXTRAS));
    assert_eq!(words.matches("Limited by cpu").count(), 1, "{words}");
    assert!(words.contains("Evidence for the limit"));
}

#[test]
fn sections_of_several_variants_are_folded() {
    let run = simulate::several();
    let page = page(&run, &EXTRAS);
    let folded = page.matches("<details><summary>Limit, evidence and trials of this variant").count();
    assert_eq!(folded, run.variants.len());
}

#[test]
fn hostile_names_are_text_and_nothing_else() {
    let hostile = "</title></script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let mut run = simulate::several();
    run.name = hostile.into();
    run.capacity.unit = hostile.into();
    run.environment.insert(hostile.into(), hostile.into());
    run.plan = serde_json::json!({"name": hostile});
    run.failure = Some(hostile.into());
    run.requirements[0].requirement = hostile.into();
    let old = run.variants[0].name.clone();
    run.variants[0].name = hostile.into();
    run.variants[0].capacity.unit = hostile.into();
    run.variants[0].considerations.push(hostile.into());
    run.variants[0].limit.evidence[0].statement = hostile.into();
    for trial in run.trials.iter_mut().filter(|trial| trial.variant == old) {
        trial.variant = hostile.into();
        trial.reasons.push(hostile.into());
        trial.metrics.insert(format!("queue{hostile}"), Some(1.0));
        trial.series[0].name = hostile.into();
    }
    let page = page(&run, &Extras { command: Some(hostile), ..EXTRAS });
    assert_eq!(page.matches("<script").count(), 1, "a hostile name became a script");
    assert!(!page.contains("<img"), "a hostile name became a tag");
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn page_loads_no_resources() {
    for (name, run) in simulate::all() {
        let page = page(&run, &EXTRAS);
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{name}: {outside}");
        }
    }
}

/// Forty trials of ten minutes, sampled at 10 Hz.
fn long() -> Run {
    const LOADS: &[(u32, Phase)] = &[(5, Phase::Confirm); 40];
    simulate::run("a long run", &[Server { loads: LOADS, hold_s: 600.0, samples_per_s: 10.0, ..CPU_LIMITED }])
}

#[test]
fn page_of_long_run_is_below_1_mb() {
    let bytes = page(&long(), &EXTRAS).len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
}

#[test]
fn empty_runs_make_a_page() {
    let mut run = simulate::single();
    run.trials.clear();
    assert!(page(&run, &Extras::default()).contains("No trials."));
    run.variants.clear();
    assert!(page(&run, &Extras::default()).contains("no trial was judged"));
}

#[test]
fn non_finite_numbers_are_not_drawn() {
    let mut run = simulate::cpu_limited();
    for trial in &mut run.trials {
        trial.load = f64::NAN;
        trial.metrics.insert("server_cpu_percent".into(), Some(f64::INFINITY));
        for series in &mut trial.series {
            series.values.fill(Some(f64::NAN));
        }
    }
    let page = page(&run, &EXTRAS);
    assert!(!page.contains("NaN") && !page.contains("inf "), "{}", words(&page));
}

#[test]
fn figure_labels_avoid_titles_and_points() {
    let page = page(&simulate::cpu_limited(), &EXTRAS);
    let texts: Vec<&str> =
        page.split("<text ").skip(1).map(|text| text.split("</text>").next().unwrap()).collect();
    let y_of = |text: &str| text.split("y=\"").nth(1)?.split('"').next()?.parse::<f64>().ok();
    let with = |end: &str| texts.iter().find(|text| text.ends_with(end)).and_then(|text| y_of(text)).unwrap();
    assert!(with(" predicted") - with(">CPU (%)") >= 12.0, "on different lines");
    assert!(
        texts.iter().all(|text| !text.contains("(cgroup quota)")),
        "a ceiling is explained beneath its figure"
    );
    assert!(page.contains("<figcaption>Ceiling 75"), "{}", words(&page));
}

#[test]
fn doubtful_prediction_is_marked_everywhere() {
    let mut run = simulate::cpu_limited();
    let shown = |run: &Run| {
        let style = Style { colour: false, width: 200, unicode: true };
        (words(&page(run, &EXTRAS)), summary(run, &EXTRAS, style, None))
    };
    run.variants[0].predicted = Some(809.0);
    run.variants[0].doubts.push(Doubt::PredictionDisagrees { predicted: 809.0, measured: 5.0 }.into());
    let (page, text) = shown(&run);
    assert!(page.contains("809?") && page.contains("doubtful: 5 was measured"), "{page}");
    assert!(text.contains("from costs and ceilings; doubtful: 5 was measured"), "{text}");
    run.variants[0].predicted = None;
    let (page, text) = shown(&run);
    assert!(page.contains("the trials contradict"), "{page}");
    assert!(text.contains("Predicted capacity: none: the trials contradict"), "{text}");
}

#[test]
fn search_figure_names_trials_by_their_number_in_the_run() {
    let run = simulate::several();
    let page = page(&run, &EXTRAS);
    // The variants' repetitions are interleaved: ext4 is in the second place each time.
    for (index, variant) in run.variants.iter().enumerate() {
        let figure = page.split_once(&format!("id=\"search-{index}-t\"")).expect("the figure").1;
        let figure = figure.split_once("</svg>").expect("its end").0;
        let along = figure.split("text-anchor=\"middle\">").skip(1).filter_map(|rest| rest.split('<').next());
        let labels: Vec<u32> = along.filter_map(|label| label.parse().ok()).collect();
        let numbers: Vec<u32> = run.trials_of(&variant.name).map(|trial| trial.number).collect();
        let every_second: Vec<u32> = numbers.iter().copied().step_by(2).collect();
        assert_eq!(labels, every_second, "{}", variant.name);
        for number in labels {
            assert!(figure.contains(&format!("trial {number}, ")), "what the point says: {number}");
        }
    }
}
