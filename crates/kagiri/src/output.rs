//! What the program writes when a run is over (summary, report, exports), and its lines on standard error:
//! [`say`], [`say_unless`], [`error_line`].

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use base::metric::MetricSpec;
use base::outcome::{Run, State, Trial};
use base::verdict::Verdict;
use base::workload::Presentation;
use report::html::Extras;
use report::survey::{SurveyFact, SurveyRow};
use report::terminal::Style;
use store::Store;

use crate::args::MeasureArgs;
use crate::atomic_file::write_atomically;
use crate::dirs;
use crate::exit::{Code, Failure, Outcome};

/// One line on standard error, about what is done. If it cannot be written (closed pipe, full disk), the line
/// is lost and the measurement continues.
pub fn say(line: &str) {
    say_styled(&fitted(line));
}

fn say_styled(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Text for standard error: [`shown`], without numbers of errors, and on a terminal in lines that fit it.
pub fn fitted(text: &str) -> String {
    let text = shown(&report::text::without_error_numbers(text));
    match error_columns() {
        None => text,
        Some(width) => {
            let style = Style { colour: false, width, unicode: true };
            style.fitted(&text).trim_end_matches('\n').to_owned()
        }
    }
}

/// Text for standard output: on a terminal in lines that fit it.
pub fn on_terminal(text: &str) -> String {
    if std::io::stdout().is_terminal() { style().fitted(text) } else { text.to_owned() }
}

/// Columns of the terminal that standard error is; `None`: it is something else, where lines stay whole.
pub fn error_columns() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0))
}

/// Text that may come from others, with blanks in place of the control characters that a terminal would obey.
pub fn shown(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(report::text::visible).collect();
    lines.join("\n")
}

/// [`say`], unless the user asked for quiet.
pub fn say_unless(quiet: bool) -> impl Fn(&str) {
    move |line| {
        if !quiet {
            say(line)
        }
    }
}

pub fn error_line(text: &str) {
    const LEAD: &str = "error:";
    let text = fitted(&format!("{LEAD} {}", text.trim_end()));
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        say_styled(&text.replacen(LEAD, &format!("\x1b[1;31m{LEAD}\x1b[0m"), 1));
    } else {
        say_styled(&text);
    }
}

/// Columns where there is no terminal.
const WIDTH: usize = 100;

pub fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    // Shells do not export COLUMNS; the kernel knows the size of a terminal (TIOCGWINSZ, ioctl_tty(2)).
    let seen = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    Style {
        colour: terminal && std::env::var_os("NO_COLOR").is_none(),
        width: said.or_else(seen).unwrap_or(WIDTH),
        unicode: is_utf8_locale(),
    }
}

/// Whether the terminal's characters are UTF-8, by the first locale variable that says anything (locale(7)).
fn is_utf8_locale() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let locale = said.into_iter().find(|locale| !locale.is_empty()).unwrap_or_default();
    locale.to_ascii_uppercase().contains("UTF")
}

/// The metrics of a run's workload; none for a workload that this version does not know.
pub fn metric_specs(run: &Run) -> &'static [MetricSpec] {
    run::registry::BUILT_IN.workload(&run.workload).map_or(&[], |workload| workload.metrics())
}

/// What the run's workload adds to its summary and report.
pub fn extras<'a>(run: &Run, command: Option<&'a str>) -> Extras<'a> {
    Extras { specs: metric_specs(run), presentation: presentation(run), command, program: None }
}

fn presentation(run: &Run) -> &'static Presentation {
    run::registry::BUILT_IN
        .workload(&run.workload)
        .map_or(&Presentation::DEFAULT, |workload| workload.presentation())
}

/// Prints on standard output. A closed pipe is no error; a full disk is one.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Print what came of a run, write what was asked for, and say how to end.
pub fn present(run: &Run, common: &MeasureArgs) -> Outcome {
    present_written(run, common, write_files(run, common.out.as_deref()).map(Some), None)
}

/// The same for a run that a console has, which keeps the report; `program`: how commands to it begin.
pub fn present_of_console(run: &Run, common: &MeasureArgs, program: &str) -> Outcome {
    let written = common.out.as_deref().map(|out| write_files(run, Some(out))).transpose();
    present_written(run, common, written, Some(program))
}

/// `report`: where it was written. What was measured is printed even if it cannot be written.
fn present_written(
    run: &Run,
    common: &MeasureArgs,
    report: Result<Option<PathBuf>, Failure>,
    program: Option<&str>,
) -> Outcome {
    let printed = if common.json {
        let bytes = store::export(run)?;
        print(&String::from_utf8_lossy(&bytes))
    } else if common.has_json_lines_on_stdout() {
        Ok(())
    } else {
        let written = report.as_ref().ok().and_then(|path| path.as_deref()?.to_str());
        print(&summary(run, written, common.full, program))
    };
    report?;
    printed.map_err(|failure| match failure {
        Failure::Runtime(error) => {
            let program = program.unwrap_or("kagiri");
            let again = format!("the run is stored: show it again with '{program} runs show {}'", run.run);
            Failure::runtime(format!("{}; {again}", Failure::Runtime(error)))
        }
        other => other,
    })?;
    Ok(code(run))
}

/// What is printed of a run whose report was written to `written`; `is_full`: all of it; `program`: how
/// commands about it begin, if it is not a run of this host.
pub fn summary(run: &Run, written: Option<&str>, is_full: bool, program: Option<&str>) -> String {
    // Why it failed is said by the error that follows.
    let shown = match run.failure {
        Some(_) => Cow::Owned(Run { failure: None, ..run.clone() }),
        None => Cow::Borrowed(run),
    };
    let extras = Extras { program, ..extras(run, None) };
    let print = if is_full { report::terminal::summary } else { report::terminal::brief };
    print(&shown, &extras, style(), written)
}

pub fn code(run: &Run) -> Code {
    let is_invalid = |trial: &Trial| trial.verdict == Verdict::Invalid;
    match run.state {
        State::Interrupted => Code::Interrupted,
        State::Failed => Code::Failed,
        // All trials are invalid: nothing was measured.
        _ if !run.trials.is_empty() && run.trials.iter().all(is_invalid) => Code::Failed,
        _ if run.requirements.iter().any(|requirement| !requirement.held) => Code::RequirementMissed,
        _ => Code::Measured,
    }
}

/// Write the report beside the results, or everything into the directory that was named.
fn write_files(run: &Run, out: Option<&Path>) -> Result<PathBuf, Failure> {
    let report = report_path(run, out)?;
    write(run, &report, report_page(run).as_bytes())?;
    if let Some(dir) = out {
        write_tables(run, dir)?;
    }
    Ok(report)
}

/// Where the report of a run belongs; its directory exists.
fn report_path(run: &Run, out: Option<&Path>) -> Result<PathBuf, Failure> {
    let report = match out {
        Some(dir) => dir.join(format!("{}.html", run.run)),
        None => dirs::report_file(&run.run)?,
    };
    let dir = report.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot make {}; the run {} is stored", dir.display(), run.run))?;
    Ok(report)
}

/// The run as JSON, and its tables.
fn write_tables(run: &Run, dir: &Path) -> Result<(), Failure> {
    write(run, &dir.join(format!("{}.json", run.run)), &store::export(run)?)?;
    write(run, &dir.join(format!("{}-trials.csv", run.run)), report::export::trials_csv(run).as_bytes())?;
    write(run, &dir.join(format!("{}-series.csv", run.run)), report::export::series_csv(run).as_bytes())
}

/// Prints the table of a survey, and writes the one report of all its runs, named after the last of them. As
/// JSON, the last run is printed, whose environment has the rows of the others.
pub fn present_survey(rows: &[SurveyRow], runs: &[Run], common: &MeasureArgs) -> Result<(), Failure> {
    let Some(last) = runs.last() else { return Ok(()) };
    // What was measured is printed even if it cannot be written.
    let report = write_survey(rows, runs, last, common.out.as_deref());
    let printed = if common.json {
        print(&String::from_utf8_lossy(&store::export(last)?))
    } else if common.has_json_lines_on_stdout() {
        Ok(())
    } else {
        let path = report.as_ref().ok().and_then(|path| path.to_str());
        let mut text = report::terminal::survey(rows, style(), path);
        for run in runs.iter().filter(|_| common.full) {
            text += "\n";
            text += &report::terminal::summary(run, &extras(run, None), style(), None);
        }
        print(&text)
    };
    report?;
    printed
}

/// The environment's key of [`SurveyFact`].
pub const SURVEY: &str = "survey";

fn survey_page(rows: &[SurveyRow], runs: &[Run]) -> String {
    let all: Vec<(&Run, Extras)> = runs.iter().map(|run| (run, extras(run, None))).collect();
    report::html::survey_page("This machine", rows, &all)
}

/// The report of the survey that a run belongs to, up to this run; runs that were removed are left out.
/// `None`: it belongs to none.
pub fn report_page_of_survey(run: &Run, store: &Store) -> Option<String> {
    let fact: SurveyFact = serde_json::from_value(run.environment.get(SURVEY)?.clone()).ok()?;
    let mut ids: Vec<&String> = fact.rows.iter().filter_map(|row| row.run.as_ref()).collect();
    ids.dedup();
    let before = ids.into_iter().filter_map(|id| dirs::find_run(store, id).ok());
    let runs: Vec<Run> = before.chain([run.clone()]).collect();
    let own = report::survey::rows(run, &fact.name, fact.main.as_deref());
    Some(survey_page(&[fact.rows, own].concat(), &runs))
}

fn write_survey(
    rows: &[SurveyRow],
    runs: &[Run],
    last: &Run,
    out: Option<&Path>,
) -> Result<PathBuf, Failure> {
    let path = report_path(last, out)?;
    write(last, &path, survey_page(rows, runs).as_bytes())?;
    for run in runs {
        out.map_or(Ok(()), |dir| write_tables(run, dir))?;
    }
    Ok(path)
}

pub fn report_page(run: &Run) -> String {
    let command = format!("kagiri runs show {} --plan > plan.toml && kagiri run plan.toml", run.run);
    report::html::page(run, &extras(run, Some(&command)))
}

fn write(run: &Run, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_atomically(path, bytes).map_err(|error| {
        let later = format!("the run is stored: write its report later with 'kagiri report {}'", run.run);
        Failure::runtime(format!("{}; {later}", Failure::Runtime(error)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_do_not_reach_the_terminal_as_commands() {
        assert_eq!(shown("making 20 files of f\x1b[31m\x07\nx"), "making 20 files of f [31m \nx");
    }
}
