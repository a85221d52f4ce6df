//! Figures that a workload gives as data.

use base::outcome::{Account, Axis, Figure, Layer, Marks, Run, Tone};

use crate::simulate;
use report::html::{Extras, page};

const HOSTILE: &str = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>";

fn figure(x: Axis, y: Axis, layers: Vec<Marks>) -> Figure {
    let layers = layers.into_iter().map(|marks| Layer::new("a layer", Tone::Second, marks)).collect();
    Figure { title: "a figure".into(), note: "What is to be seen.".into(), x, y, layers }
}

fn cells(columns: Vec<Vec<Option<f64>>>) -> Marks {
    Marks::Cells {
        across: [0.0, 2.0],
        upward: [0.0, 3.0],
        columns,
        quantity: "delay".into(),
        unit: "ms".into(),
    }
}

fn all_kinds() -> Vec<Figure> {
    let linear = |layers| figure(Axis::of("time", "s"), Axis::of("rate", "bit/s"), layers);
    vec![
        linear(vec![
            Marks::Band { at: vec![[0.0, 1e6, 2e6], [5.0, 1e6, 3e6]] },
            Marks::Line { at: vec![(0.0, Some(1e6)), (1.0, None), (2.0, Some(2e6))] },
            Marks::Steps { at: vec![(0.0, Some(1e6)), (5.0, Some(2e6))] },
            Marks::Points { at: vec![[1.0, 1e6], [2.0, 4e6]] },
            Marks::Bars { at: vec![[1.0, 1e6], [2.0, 4e6]], width: 0.5 },
            Marks::Across { y: 4e6, label: "link".into() },
            Marks::Down { x: 3.0, label: "cliff".into() },
        ]),
        figure(
            Axis::log("time", "ms"),
            Axis::log("share", ""),
            vec![Marks::Line { at: vec![(0.0, Some(1.0)), (1.0, Some(1.0)), (200.0, Some(1e-5))] }],
        ),
        figure(
            Axis::of("time", "ms"),
            Axis::of("source", ""),
            vec![Marks::Spans { at: vec![[0.0, -0.1, 2.0], [1.0, 0.1, 210.0]] }],
        ),
        figure(
            Axis::of("event", "").between(0.0, 2.0),
            Axis::of("source", "").between(0.0, 3.0),
            vec![cells(vec![vec![Some(1.0), None, Some(3.0)], vec![Some(2.0), Some(300.0), Some(0.5)]])],
        ),
    ]
}

fn run_with(figures: Vec<Figure>) -> Run {
    let mut run = simulate::single();
    run.variants[0].account = Account { figures: figures.clone(), ..Account::default() };
    run.variants[0].figures = figures;
    run
}

fn drawn(figures: Vec<Figure>) -> String {
    let page = page(&run_with(figures), &Extras::default());
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    for wrong in ["NaN", "<img"] {
        assert!(!page.contains(wrong), "{wrong} in the page");
    }
    for data in page.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(data.chars().all(|c| "MLHVhvlmz -.0123456789".contains(c)), "not a path: {data}");
    }
    let count = |text: &str| page.matches(text).count();
    assert_eq!(count("<svg"), count("</svg>"));
    page
}

#[test]
fn every_kind_of_marks_is_drawn() {
    let figures = all_kinds();
    let whole = drawn(figures.clone());
    std::fs::write(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("report_figures.html"), &whole)
        .unwrap();
    for at in 0..figures.len() {
        for id in [format!("loads-0-{at}-t"), format!("seen-0-{at}-d")] {
            assert_eq!(whole.matches(&format!("id=\"{id}\"")).count(), 1, "{id} is to be there once");
        }
    }
    for said in
        ["Rate (Mbit/s)", ">link<", ">cliff<", "Share", "delay from 500 µs", "a layer", "heat7", "area f2"]
    {
        assert!(whole.contains(said), "{said}");
    }
    let shares = [">1<", ">0.1<", ">0.01<", ">0.001<", ">1e-5<"];
    assert!(
        shares.iter().filter(|share| whole.contains(*share)).count() >= 3,
        "a logarithmic axis has powers of ten"
    );
}

#[test]
fn times_have_the_prefix_that_suits_them() {
    let line = || Marks::Line { at: vec![(0.004, Some(1.0)), (50.0, Some(2.0))] };
    let page = drawn(vec![figure(
        Axis::log("response", "ms"),
        Axis::of("share", "%").between(0.0, 3.0),
        vec![line()],
    )]);
    for label in [">10 µs<", ">1 ms<", ">10 ms<", ">Response<"] {
        assert!(page.contains(label), "{label}");
    }
    let points = Marks::Points { at: vec![[1.0, 1000.0], [2.0, 2500.0]] };
    let page = drawn(vec![figure(Axis::of("event", ""), Axis::of("difference", "us"), vec![points])]);
    assert!(page.contains(">Difference (ms)<") && !page.contains("(us)"));
}

#[test]
fn many_lines_share_a_colour_and_an_entry_of_the_legend() {
    let named = |n: usize| {
        let marks = Marks::Line { at: vec![(0.0, Some(1.0)), (1.0, Some(n as f64))] };
        Layer::new(&format!("client {n}"), Tone::First, marks)
    };
    let of = |count: usize| {
        let layers = (1..=count).map(named).collect();
        drawn(vec![Figure { layers, ..figure(Axis::of("time", "s"), Axis::of("memory", "B"), Vec::new()) }])
    };
    let few = of(6);
    assert!(few.contains("client 3") && !few.contains("class=\"s1 many\""));
    let many = of(50);
    assert!(many.contains("50 lines: client 1 to client 50") && !many.contains("client 3<"));
}

#[test]
fn counts_have_whole_numbers_only() {
    let points = || Marks::Points { at: vec![[0.0, 0.0], [1.0, 1.0]] };
    let page = drawn(vec![figure(Axis::of("event", ""), Axis::of("incomplete", ""), vec![points()])]);
    assert!(!page.contains(">0.5<") && page.contains(">1<"));
    let shares = Marks::Points { at: vec![[0.0, 0.0], [1.0, 0.9]] };
    let page = drawn(vec![figure(Axis::of("event", ""), Axis::of("share", ""), vec![shares])]);
    assert!(page.contains(">0.5<") || page.contains(">0.4<"), "a share is no count");
}

#[test]
fn hostile_words_of_a_figure_are_text() {
    let mut figures = all_kinds();
    for figure in &mut figures {
        for text in [&mut figure.title, &mut figure.note, &mut figure.x.quantity, &mut figure.y.unit] {
            *text = HOSTILE.into();
        }
        for layer in &mut figure.layers {
            layer.name = HOSTILE.into();
            match &mut layer.marks {
                Marks::Across { label, .. } | Marks::Down { label, .. } => *label = HOSTILE.into(),
                Marks::Cells { quantity, unit, .. } => (*quantity, *unit) = (HOSTILE.into(), HOSTILE.into()),
                _ => {}
            }
        }
    }
    drawn(figures);
}

#[test]
fn non_finite_values_draw_nothing() {
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX, f64::MIN_POSITIVE];
    let axes = [Axis::of("a", "s"), Axis::log("b", "B"), Axis::of("c", "").between(f64::NAN, -1.0)];
    let mut figures = vec![Figure::default()];
    for axis in axes {
        for value in bad {
            let layers = vec![
                Marks::Points { at: vec![[value, value]] },
                Marks::Line { at: vec![(value, Some(value)), (1.0, None)] },
                Marks::Steps { at: vec![(value, Some(value))] },
                Marks::Band { at: vec![[value, value, value]] },
                Marks::Bars { at: vec![[value, value]], width: value },
                Marks::Spans { at: vec![[value, value, value]] },
                cells(vec![vec![Some(value)], vec![], vec![None]]),
                Marks::Cells {
                    across: [value, value],
                    upward: [value, value],
                    columns: vec![vec![Some(1.0)]],
                    quantity: String::new(),
                    unit: String::new(),
                },
                Marks::Across { y: value, label: "a".into() },
                Marks::Down { x: value, label: "b".into() },
            ];
            figures.push(figure(axis.clone(), axis.clone(), layers.clone()));
            figures.extend(layers.into_iter().map(|marks| figure(axis.clone(), axis.clone(), vec![marks])));
        }
    }
    drawn(figures);
}

#[test]
fn rows_of_spans_with_names_are_a_timeline_with_its_script() {
    let row = Marks::Across { y: 0.0, label: format!("sender {HOSTILE}") };
    let spans = Marks::Spans { at: vec![[0.0, 0.064, 0.065], [0.0, 0.066, 0.068]] };
    let lanes = figure(Axis::of("time", "s").between(0.06, 0.07), Axis::of("thread", ""), vec![row, spans]);
    let mut run = run_with(vec![lanes]);
    run.variants[0].figures.clear();
    let page = page(&run, &Extras::default());
    assert_eq!(page.matches("<section class=\"timeline\"").count(), 1);
    // Its data twice, the script of timelines, and the page's own.
    assert_eq!(page.matches("<script").count(), 4);
    assert!(!page.contains("<img") && page.contains("\\u003cimg"), "a label is text");
    let policy = page.split("script-src ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
    // Other pages do not carry it.
    assert!(!drawn(all_kinds()).contains(".timeline"));
}
