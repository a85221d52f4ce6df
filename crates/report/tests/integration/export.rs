//! What other programs read.

use report::export::{series_csv, trials_csv};

use crate::simulate;

#[test]
fn trials_are_one_row_each_and_unknown_is_empty() {
    insta::assert_snapshot!("trials_csv", trials_csv(&simulate::cpu_limited()));
    insta::assert_snapshot!("trials_csv_interrupted", trials_csv(&simulate::interrupted()));
}

#[test]
fn series_are_one_row_a_sample() {
    let run = simulate::single();
    let text = series_csv(&run);
    let samples: usize = run.trials.iter().flat_map(|t| &t.series).map(|s| s.values.len()).sum();
    assert_eq!(text.lines().count(), samples + 1);
    insta::assert_snapshot!("series_csv", text.lines().step_by(16).collect::<Vec<_>>().join("\n"));
}

#[test]
fn cells_are_no_formulas_and_no_escape_sequences() {
    for begin in ["=", "+", "-", "@", "\t", "\r"] {
        let mut run = simulate::single();
        let text = format!("{begin}cmd|'/c calc'!A1\u{1b}[31m\u{9b}");
        run.trials[0].variant.clone_from(&text);
        run.trials[0].reasons = vec![text.clone()];
        run.trials[0].series[0].name.clone_from(&text);
        run.trials[0].metrics.insert(text, Some(-1.5));
        for text in [trials_csv(&run), series_csv(&run)] {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
            let rows: Vec<_> = reader.records().map(|row| row.unwrap()).collect();
            let cells: Vec<&str> = rows.iter().flat_map(|row| row.iter()).collect();
            assert!(cells.iter().any(|cell| cell.contains("calc")), "{text}");
            for cell in cells {
                assert!(!cell.contains(|c: char| c.is_control()), "{cell:?}");
                let is_formula = cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
                assert!(!is_formula, "{cell:?}");
            }
        }
        assert!(trials_csv(&run).contains(",-1.5,"), "a negative number stays one");
    }
}

#[test]
fn hostile_names_stay_in_their_cell() {
    let mut run = simulate::single();
    run.trials[0].variant = "a,\"b\"\nc".into();
    let text = trials_csv(&run);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<_> = reader.records().map(|row| row.unwrap()).collect();
    assert_eq!((rows.len(), &rows[0][2]), (1, "a,\"b\"\nc"));
}
