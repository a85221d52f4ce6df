//! Variants that differ in one number are drawn against it.

use base::outcome::{LoadMetric, Run};
use report::html::{Extras, page};
use report::terminal::{Style, brief};
use serde_json::{Value, json};

use crate::simulate;

/// Three variants with a goodput each, and their settings.
fn run(settings: [Value; 3]) -> Run {
    let mut run = simulate::several();
    let names: Vec<String> = run.variants.iter().map(|variant| variant.name.clone()).collect();
    let variants = names.iter().zip(settings);
    let variants = variants.map(|(name, settings)| json!({ "name": name, "settings": settings }));
    run.plan = json!({ "variants": variants.collect::<Vec<_>>() });
    for (variant, mbit) in run.variants.iter_mut().zip([10.0, 80.0, 90.0]) {
        let values = vec![mbit * 1e6; 3];
        variant.findings = vec![LoadMetric { metric: "goodput_bit_per_s".to_owned(), values }];
    }
    for trial in &mut run.trials {
        let mbit = if trial.variant == names[0] { 10.0 } else { 80.0 };
        trial.metrics.insert("goodput_bit_per_s".to_owned(), Some(mbit * 1e6));
    }
    run
}

fn drawn(run: &Run) -> String {
    page(run, &Extras::default())
}

#[test]
fn variants_of_one_number_are_drawn_against_it() {
    let sizes = ["64B", "1KiB", "64KiB"].map(|size| json!({ "size": size, "flows": 1 }));
    let page = drawn(&run(sizes));
    assert!(page.contains("Goodput against size"), "{page}");
    assert!(!page.contains("Goodput of every variant"), "a line takes the place of the bars");
    for size in [">64B<", ">1KiB<", ">64KiB<"] {
        assert!(page.contains(size), "the axis has the plan's own numbers: {size}");
    }
    for sentence in ["Goodput at size 64KiB: 90\u{a0}Mbit/s", "Goodput at size 64B: 10\u{a0}Mbit/s"] {
        assert!(page.contains(sentence), "{sentence}");
    }
}

#[test]
fn what_else_differs_names_a_line() {
    let mut all = run(["64B", "1KiB", "64KiB"].map(|size| json!({ "size": size, "pattern": "push" })));
    // A fourth and a fifth variant with grants.
    for (at, size) in [(0, "64B"), (1, "1KiB")] {
        let mut other = all.variants[at].clone();
        other.name = format!("{} with grants", other.name);
        let trials = all.trials.iter().filter(|trial| trial.variant == all.variants[at].name).cloned();
        let trials: Vec<_> = trials.collect();
        all.trials.extend(trials.into_iter().map(|mut trial| {
            trial.variant.clone_from(&other.name);
            trial
        }));
        let added = json!({ "name": other.name, "settings": { "size": size, "pattern": "grant" } });
        all.plan["variants"].as_array_mut().expect("an array").push(added);
        all.variants.push(other);
    }
    let page = drawn(&all);
    for part in
        ["Goodput against size", "push", "grant", "Goodput at size 1KiB:", "<li>grant: 80\u{a0}Mbit/s"]
    {
        assert!(page.contains(part), "{part}");
    }
    // A plan's own words for the groups.
    let names =
        ["iperf3, 64 B", "iperf3, 1 KiB", "iperf3, 64 KiB", "event builder, 64 B", "event builder, 1 KiB"];
    for (at, name) in names.into_iter().enumerate() {
        let old = std::mem::replace(&mut all.variants[at].name, name.to_owned());
        all.plan["variants"][at]["name"] = json!(name);
        all.trials
            .iter_mut()
            .filter(|trial| trial.variant == old)
            .for_each(|trial| trial.variant = name.to_owned());
    }
    all.variants[4].findings[0].values = vec![20e6; 3];
    let sentence = "<li>iperf3: 80\u{a0}Mbit/s";
    let page = drawn(&all);
    assert!(
        page.contains(sentence) && page.contains("<li>event builder: 20\u{a0}Mbit/s (25\u{a0}% of that)"),
        "{page}"
    );
}

#[test]
fn line_has_its_ceiling_or_an_arrow_to_it() {
    let mut all = run(["64B", "1KiB", "64KiB"].map(|size| json!({ "size": size })));
    for (mbit, text) in
        [(100.0, "ceiling 100 Mbit/s"), (956.4, "\u{2191} Ceiling 956.4\u{a0}Mbit/s, above the scale.")]
    {
        for trial in &mut all.trials {
            trial.metrics.insert("theoretical_bit_per_s".to_owned(), Some(mbit * 1e6));
        }
        assert!(drawn(&all).contains(text), "{text}");
    }
    for trial in &mut all.trials {
        trial.metrics.insert("theoretical_bit_per_s".to_owned(), Some(50e6));
    }
    assert!(!drawn(&all).contains("eiling 50"), "a ceiling that was exceeded is none");
}

#[test]
fn variants_of_two_numbers_or_none_keep_their_bars() {
    let two = [(1, "64B"), (2, "1KiB"), (3, "64KiB")];
    let two = two.map(|(flows, size)| json!({ "size": size, "flows": flows }));
    let none = ["push", "grant", "pull"].map(|pattern| json!({ "pattern": pattern }));
    for settings in [two, none] {
        let page = drawn(&run(settings));
        assert!(page.contains("Goodput of every variant") && !page.contains(" against size"));
    }
}

#[test]
fn bars_have_their_ceiling_or_an_arrow_to_it() {
    let mut all = run(["push", "grant", "pull"].map(|pattern| json!({ "pattern": pattern })));
    for (theoretical_mbit, arrow) in [(100.0, false), (956.4, true)] {
        for trial in &mut all.trials {
            trial.metrics.insert("theoretical_bit_per_s".to_owned(), Some(theoretical_mbit * 1e6));
        }
        let page = drawn(&all);
        assert_eq!(page.contains("\u{2192} ceiling 956.4 Mbit/s"), arrow, "{theoretical_mbit}");
        assert!(page.contains("Dashed: what the link can carry."));
    }
}

#[test]
fn brief_answer_that_lacks_rows_says_the_ends() {
    let mut all = run(["64B", "1KiB", "64KiB"].map(|size| json!({ "size": size })));
    let style = Style { width: 80, colour: false, unicode: true };
    let said = "Goodput at size 64KiB: 90 Mbit/s";
    let short = brief(&all, &Extras::default(), style, None);
    assert!(!short.contains(said), "all rows are shown: {short}");
    let last = all.variants[1].clone();
    for kib in 2..18 {
        let name = format!("{kib} KiB");
        let settings = json!({ "size": format!("{kib}KiB") });
        all.plan["variants"]
            .as_array_mut()
            .expect("an array")
            .push(json!({ "name": name, "settings": settings }));
        all.variants.push(base::outcome::VariantOutcome { name, ..last.clone() });
    }
    let text = brief(&all, &Extras::default(), style, None);
    for sentence in [said, "Goodput at size 64B: 10 Mbit/s"] {
        assert!(text.contains(sentence), "{text}");
    }
    assert!(text.lines().count() <= 15 && text.contains("more variants"), "{text}");
}
