//! The flags of a workload, built from its settings.

use std::marker::PhantomData;
use std::path::Path;

use base::plan::{Plan, PlanError};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use serde_json::{Map, Value, json};
use workload::settings::{self, Declaration, Flag, Kind, Settings, declarations, value_name};

use super::common::with_seconds;
use crate::exit::Failure;

/// The settings that the command line gives, and no others: defaults are filled in by [`Self::resolve`].
#[derive(Debug, Clone)]
pub struct WorkloadArgs<S> {
    given: Value,
    _settings: PhantomData<S>,
}

/// The group of all flags of a workload, for flags that exclude every one of them.
pub const SETTINGS: &str = "settings";

impl<S: Settings> Args for WorkloadArgs<S> {
    fn augment_args(command: Command) -> Command {
        let group = clap::ArgGroup::new(SETTINGS).multiple(true);
        let args = own_flags::<S>().flat_map(|(setting, flag)| args::<S>(setting, flag)).collect::<Vec<_>>();
        let group = group.args(args.iter().map(|arg| arg.get_id().clone()));
        command.args(args).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Settings> FromArgMatches for WorkloadArgs<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self { given: json!({}), _settings: PhantomData };
        for (setting, flag) in own_flags::<S>() {
            let switches = flag.switches.iter().map(|(name, value)| (switch_id(setting, name), json!(value)));
            let is_default = json!(setting.default != true);
            let all = [(setting.key.clone(), is_default)].into_iter().chain(switches);
            for (id, of_switch) in all.filter(|(id, _)| is_given(matches, id)) {
                let value = matches.try_get_one::<Value>(&id).ok().flatten().cloned().unwrap_or(of_switch);
                args.set(&setting.key, value);
            }
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: Settings> WorkloadArgs<S> {
    pub fn set(&mut self, key: &str, value: Value) {
        let mut place = &mut self.given;
        for name in key.split('.') {
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[name];
        }
        *place = value;
    }

    #[cfg(test)]
    pub fn given(&self) -> &Value {
        &self.given
    }

    /// The value that the command line gives to `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        key.split('.').try_fold(&self.given, |table, name| table.get(name))
    }

    /// All settings: the given ones, and the defaults of all others.
    /// Errors: Wrong settings, with their flags.
    pub fn resolve(&self, workload: &str) -> Result<Value, Failure> {
        let mut args = self.clone();
        for (setting, flag) in flags::<S>().filter(|(_, flag)| flag.file) {
            if let Some(Value::String(path)) = self.get(&setting.key) {
                args.set(&setting.key, file(&flag_name(setting, flag), path)?);
            }
        }
        let settings =
            settings::read::<S>(&args.given).map_err(|error| named_by_flags::<S>(workload, &error))?;
        Ok(serde_json::to_value(settings)?)
    }

    /// The same failure with flags in place of the keys that a part names: no plan was written.
    pub fn with_flags(&self, workload: &str, failure: Failure) -> Failure {
        let Failure::Usage(problem) = failure else { return failure };
        let words = problem.split(' ').map(|word| {
            let key = word.strip_prefix(workload).and_then(|key| key.strip_prefix('.')?.strip_suffix(':'));
            let flag = key.and_then(flag_of::<S>);
            flag.map_or_else(|| word.to_owned(), |flag| format!("{flag}:"))
        });
        Failure::Usage(words.collect::<Vec<_>>().join(" "))
    }

    /// A plan of these settings alone.
    /// Errors: See [`Self::resolve`].
    pub fn plan(&self, workload: &str, name: String, variant: &str) -> Result<Plan, Failure> {
        Ok(Plan::of_one(workload, name, variant, self.resolve(workload)?))
    }
}

/// The message of an error in settings, with flags in place of the keys.
fn named_by_flags<S: Settings>(workload: &str, error: &PlanError) -> Failure {
    // Further keys stand between backticks: every second piece is one, or something else that is quoted.
    let pieces = error.problem.split('`').enumerate().map(|(at, piece)| match at % 2 {
        0 => piece.to_owned(),
        _ => flag_of::<S>(piece).unwrap_or_else(|| format!("`{piece}`")),
    });
    let problem = pieces.collect::<String>();
    let name = |key: &String| match key.strip_prefix("set.") {
        Some(variable) => format!("--set {variable}"),
        None => flag_of::<S>(key).unwrap_or_else(|| format!("{workload}.{key}")),
    };
    match error.key.as_ref().map(name) {
        Some(name) => Failure::Usage(format!("{name}: {problem}")),
        None => Failure::Usage(problem),
    }
}

/// The flag of a key; of a table, that of its first key.
fn flag_of<S: Settings>(key: &str) -> Option<String> {
    let found = flags::<S>().find(|(setting, _)| setting.key == key);
    let table = || flags::<S>().find(|(setting, _)| setting.key.starts_with(&format!("{key}.")));
    found.or_else(table).map(|(setting, flag)| flag_name(setting, flag))
}

fn flag_name(setting: &Declaration, flag: &Flag) -> String {
    match flag.positional {
        true => value_name(setting),
        false => format!("--{}", long_name(setting, flag)),
    }
}

/// A switch whose default is on is turned off.
fn long_name(setting: &Declaration, flag: &Flag) -> String {
    match setting.kind == Kind::Switch && setting.default == true {
        true => format!("no-{}", flag.name),
        false => flag.name.clone(),
    }
}

fn flags<S: Settings>() -> impl Iterator<Item = (&'static Declaration, &'static Flag)> {
    declarations::<S>().iter().filter_map(|setting| Some((setting, setting.flag.as_ref()?)))
}

fn own_flags<S: Settings>() -> impl Iterator<Item = (&'static Declaration, &'static Flag)> {
    flags::<S>().filter(|(_, flag)| !flag.shared)
}

fn switch_id(setting: &Declaration, name: &str) -> String {
    format!("{}={name}", setting.key)
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    let is_declared = matches.try_contains_id(id).unwrap_or(false);
    is_declared && matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
}

/// The argument of a setting, and the switches that set it, too.
fn args<S: Settings>(setting: &Declaration, flag: &Flag) -> Vec<Arg> {
    let mut arg = Arg::new(setting.key.clone()).help(help(setting, flag)).hide_short_help(flag.rare);
    if !flag.positional {
        arg = arg.long(long_name(setting, flag)).aliases(flag.aliases.clone());
    }
    if let Some(letter) = flag.short {
        arg = arg.short(letter);
    }
    if let Some(group) = &flag.group {
        arg = arg.help_heading(group.clone());
    }
    if let Some(key) = &flag.requires {
        arg = arg.requires(key.clone());
    }
    arg = arg.conflicts_with_all(flag.conflicts.iter().filter(|key| **key != setting.key).cloned());
    arg = match (&setting.kind, &flag.missing) {
        (Kind::Switch, _) => arg.action(ArgAction::SetTrue),
        (_, Some(missing)) => value::<S>(arg, setting).num_args(0..=1).default_missing_value(missing.clone()),
        (Kind::Text, None) if flag.positional || flag.file || is_plain_text(setting) => {
            value::<S>(arg, setting)
        }
        // A negative number gets an answer of its own.
        _ => value::<S>(arg, setting).allow_hyphen_values(true),
    };
    let switches = flag.switches.iter().map(|(name, value)| {
        let switch = Arg::new(switch_id(setting, name)).action(ArgAction::SetTrue);
        let switch =
            switch.conflicts_with(setting.key.clone()).help(format!("Same as --{} {value}", flag.name));
        let switch = match &flag.group {
            Some(group) => switch.help_heading(group.clone()),
            None => switch,
        };
        let switch = match &flag.requires {
            Some(key) => switch.requires(key.clone()),
            None => switch,
        };
        match name.chars().collect::<Vec<_>>()[..] {
            [letter] => switch.short(letter).hide_short_help(true),
            _ => switch.long(name.clone()),
        }
    });
    [arg].into_iter().chain(switches).collect()
}

/// Any text will do: a text that the setting's type reads is described in its help.
fn is_plain_text(setting: &Declaration) -> bool {
    setting.flag.as_ref().is_some_and(|flag| flag.value.is_none())
}

fn value<S: Settings>(arg: Arg, setting: &Declaration) -> Arg {
    let arg = arg.value_name(value_name(setting));
    if let Kind::Choice(choices) = &setting.kind {
        let choices = choices.iter().map(|one| PossibleValue::new(one.name.clone()).help(one.help.clone()));
        return arg.value_parser(PossibleValuesParser::new(choices).map(Value::String));
    }
    let setting = setting.clone();
    arg.value_parser(ValueParser::from(move |text: &str| -> Result<Value, String> {
        let value = parse(&setting, text)?;
        settings::one::<S>(&setting.key, &value).map_err(|error| error.problem)?;
        Ok(value)
    }))
}

/// The value that a text means, as a plan has it.
fn parse(setting: &Declaration, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let is_negative = text.starts_with('-');
    let number = |text: &str, example: &str| match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(json!(number)),
        _ => Err(format!("write {example}")),
    };
    match &setting.kind {
        Kind::Integer { or_text } => match text.parse::<u64>() {
            Ok(number) => Ok(json!(number)),
            Err(_) if is_negative && setting.min.as_ref().and_then(Value::as_f64) >= Some(1.0) => {
                Err("it must be positive".to_owned())
            }
            Err(_) if is_negative => Err("it must not be negative".to_owned()),
            Err(_) if *or_text => Ok(json!(text)),
            Err(_) => Err("write a whole number such as 100".to_owned()),
        },
        Kind::Number => number(text, "a number such as 0.5"),
        Kind::Percent => number(text.trim_end_matches('%').trim_end(), "a share in %, such as 1 or 1%"),
        Kind::Quantity(format) => Ok(quantity(setting, format, text)),
        Kind::Switch | Kind::Text | Kind::Choice(_) => Ok(json!(text)),
    }
}

/// A quantity: a bare time is in seconds, and where the flag follows iperf3, sizes and rates are read as
/// iperf3 reads them; 0 is then the same as leaving the flag out.
fn quantity(setting: &Declaration, format: &str, text: &str) -> Value {
    let is_iperf3 = setting.flag.as_ref().is_some_and(|flag| flag.iperf3);
    if is_iperf3 && text.parse::<f64>().is_ok_and(|number| number == 0.0) {
        return Value::Null;
    }
    let read = match format {
        "span" => with_seconds(text),
        _ if is_iperf3 => as_iperf3_means(format, text),
        _ => None,
    };
    json!(read.as_deref().unwrap_or(text))
}

/// iperf3's `128K` with a unit: its sizes are powers of 1024, its rates powers of 1000 bits. `None` for what
/// has a unit already.
fn as_iperf3_means(format: &str, text: &str) -> Option<String> {
    let (number, prefix) = match text.char_indices().next_back()? {
        (at, letter) if letter.is_ascii_alphabetic() => (&text[..at], letter.to_ascii_uppercase()),
        _ => (text, ' '),
    };
    number.parse::<f64>().ok().filter(|number| number.is_finite())?;
    let unit = match (format, prefix) {
        ("byte-size", ' ') => "B".to_owned(),
        ("byte-size", 'K' | 'M' | 'G' | 'T') => format!("{prefix}iB"),
        ("bit-rate", ' ') => "bit/s".to_owned(),
        ("bit-rate", 'K') => "kbit/s".to_owned(),
        ("bit-rate", 'M' | 'G' | 'T') => format!("{prefix}bit/s"),
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// The absolute path of an existing file: the process that reads it may have another working directory.
fn file(flag: &str, path: &str) -> Result<Value, Failure> {
    let named = |error| anyhow::Error::new(error).context(format!("cannot read {flag} {path}"));
    let found = Path::new(path).canonicalize().map_err(|error| Failure::of_named(named(error)))?;
    match found.is_file() {
        true => Ok(json!(found)),
        false => Err(Failure::usage(format!("{flag} {path}: it is not a file"))),
    }
}

/// What the flag does, and what is done without it.
fn help(setting: &Declaration, flag: &Flag) -> String {
    let default = setting.default_text().filter(|_| setting.kind != Kind::Switch && flag.missing.is_none());
    let mut sentence = setting.help.clone();
    if setting.kind == Kind::Switch && setting.default == true {
        let rest = sentence.split_off(1);
        sentence = format!("Do not {}{rest}", sentence.to_lowercase());
    }
    match default {
        Some(default) => format!("{sentence} [default: {default}]"),
        None => sentence,
    }
}
