//! Stored runs side by side.

use axum::extract::{Query, State};
use base::outcome::Run;
use report::terminal::{Style, circumstances, differences};
use run::registry::BUILT_IN;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Store;
use store::compare::{Change, Comparison, Difference, Pair, Sample};

use crate::app::Shared;
use crate::error::{ApiError, ApiResult};
use crate::json::Json;

const RUNS_MAX: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Separated by commas; the others are compared with the first.
    ids: String,
}

pub async fn show(State(app): State<Shared>, Query(wanted): Query<Wanted>) -> ApiResult<Json<Value>> {
    let ids: Vec<String> =
        wanted.ids.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect();
    if ids.len() < 2 || ids.len() > RUNS_MAX {
        return Err(ApiError::invalid(
            format!("name 2 to {RUNS_MAX} runs, separated by commas"),
            Some("ids"),
        ));
    }
    app.with_store(move |store| compared(store, &ids)).await.map(Json)
}

fn compared(store: &Store, ids: &[String]) -> ApiResult<Value> {
    let load = |id: &String| {
        let mut run = store.load_without_series(id)?;
        run::recover::evaluate(&mut run, &BUILT_IN);
        Ok(run)
    };
    let runs: Vec<Run> = ids.iter().map(load).collect::<ApiResult<_>>()?;
    if let Some(other) = runs.iter().find(|run| run.workload != runs[0].workload) {
        return Err(ApiError::invalid(
            format!(
                "{} and {} are runs of different workloads ({} and {}), whose numbers mean different things",
                runs[0].run, other.run, runs[0].workload, other.workload
            ),
            Some("ids"),
        ));
    }
    let specs = BUILT_IN.workload(&runs[0].workload).map_or(&[][..], |workload| workload.metrics());
    Ok(view(&store::compare(&runs, specs), &runs))
}

fn view(comparison: &Comparison, runs: &[Run]) -> Value {
    let ids = &comparison.runs;
    let mut rows = Vec::new();
    // The pairs of one variant of the first run, with all later runs.
    let mut variants: Vec<&str> = Vec::new();
    for pair in &comparison.pairs {
        if !variants.contains(&pair.a.variant.as_str()) {
            variants.push(&pair.a.variant);
        }
    }
    for variant in variants {
        let pairs: Vec<&Pair> = comparison.pairs.iter().filter(|pair| pair.a.variant == variant).collect();
        rows.push(row(ids, variant, None, &sides(&pairs, |pair| Some(pair.result()))));
        let loads: Vec<(f64, &str)> = pairs
            .iter()
            .flat_map(|pair| &pair.loads)
            .flat_map(|at| at.metrics.iter().map(|metric| (at.load, metric.metric.as_str())))
            .fold(Vec::new(), |mut all, one| {
                if !all.contains(&one) {
                    all.push(one);
                }
                all
            });
        for (load, name) in loads {
            let found = sides(&pairs, |pair| {
                let at = pair.loads.iter().find(|at| at.load == load)?;
                at.metrics.iter().find(|metric| metric.metric == name)
            });
            rows.push(row(ids, variant, Some(load), &found));
        }
    }
    let of_run = |id: &String| verdict(&comparison.pairs, |pair| pair.b.run == *id);
    let verdicts: Vec<&str> = ids.iter().skip(1).map(of_run).collect();
    let style = Style { colour: false, width: 100, unicode: true };
    json!({
        "ids": ids,
        "names": runs.iter().map(|run| &run.name).collect::<Vec<_>>(),
        "words": differences(comparison, style),
        "circumstances": circumstances(comparison),
        "verdict": verdict(&comparison.pairs, |_| true),
        "verdicts": verdicts,
        "has_too_few": comparison.pairs.iter().any(|pair| pair.result().has_too_few),
        "rows": rows,
        "notes": comparison.notes,
    })
}

/// The later run of each pair, and the difference.
type Sides<'a> = Vec<(&'a str, &'a Difference)>;

fn sides<'a>(pairs: &[&'a Pair], of: impl Fn(&'a Pair) -> Option<&'a Difference>) -> Sides<'a> {
    pairs.iter().filter_map(|pair| Some((pair.b.run.as_str(), of(pair)?))).collect()
}

fn row(ids: &[String], variant: &str, load: Option<f64>, sides: &Sides<'_>) -> Value {
    let Some((_, first)) = sides.first() else { return Value::Null };
    let other = |id: &String| sides.iter().find(|(run, _)| run == id).map(|(_, difference)| *difference);
    let others: Vec<Value> = ids.iter().skip(1).map(|id| change(other(id))).collect();
    let mut values = vec![sample(&first.a)];
    values.extend(
        ids.iter().skip(1).map(|id| other(id).map_or(Value::Null, |difference| sample(&difference.b))),
    );
    let second = others.first().cloned().unwrap_or_default();
    json!({
        "variant": variant,
        "load": load,
        "metric": first.metric,
        "unit": first.unit,
        "better": first.better,
        "values": values,
        "change_percent": second["change_percent"],
        "change_interval": second["change_interval"],
        "verdict": second["verdict"],
        "reason": second["reason"],
        "others": others,
    })
}

fn sample(sample: &Sample) -> Value {
    json!({ "value": sample.median, "interval": sample.interval, "n": sample.n })
}

fn change(difference: Option<&Difference>) -> Value {
    let Some(found) = difference else {
        return json!({
            "change_percent": null, "change_interval": null, "verdict": "unknown", "reason": null,
        });
    };
    json!({
        "change_percent": found.difference_percent,
        "change_interval": found.interval,
        "verdict": found.change,
        "reason": found.reason,
    })
}

/// What the results of some pairs amount to.
fn verdict(pairs: &[Pair], is_meant: impl Fn(&Pair) -> bool) -> &'static str {
    let changes: Vec<Change> =
        pairs.iter().filter(|pair| is_meant(pair)).map(|pair| pair.result().change).collect();
    let has = |change: Change| changes.contains(&change);
    match (has(Change::Better), has(Change::Worse)) {
        (true, true) => "mixed",
        (true, false) => "better",
        (false, true) => "worse",
        (false, false) if has(Change::Differs) => "differs",
        (false, false) if !changes.is_empty() && changes.iter().all(|change| *change == Change::Equal) => {
            "equal"
        }
        _ => "unknown",
    }
}
