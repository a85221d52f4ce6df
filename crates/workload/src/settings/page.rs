//! The reference page of a workload's settings, as Markdown.

use super::declaration::{Declaration, Kind, Settings, declarations};

const COLUMNS: usize = 118;

/// The settings of workload `name`, which are flags of `kagiri COMMAND`.
pub fn page<S: Settings>(name: &str, command: &str) -> String {
    let intro = format!(
        "Keys of the table `[{name}]` of a plan (`kagiri run PLAN.toml`), and flags of `kagiri {command}`. \
         `kagiri plan schema {name}` prints the JSON schema."
    );
    let mut page = format!("# Settings of {name}\n\n{}", wrapped(&intro));
    let mut group = None;
    for setting in declarations::<S>() {
        let own = setting.flag.as_ref().and_then(|flag| flag.group.clone());
        if own.is_some() && own != group {
            page += &format!("\n## {}\n", own.as_deref().unwrap_or_default());
            group = own;
        }
        page += &entry(setting);
    }
    page
}

fn entry(setting: &Declaration) -> String {
    let mut entry = format!("\n### `{}`\n\n{}", setting.key, wrapped(&(setting.help.clone() + ".")));
    let mut facts = Vec::new();
    facts.extend(flags(setting).map(|flags| format!("flag {flags}")));
    facts.extend(setting.default_text().map(|default| match setting.unset {
        Some(_) => format!("unless given: {default}"),
        None => format!("default `{default}`"),
    }));
    facts.extend(setting.range_text().map(|range| format!("range {range}")));
    if !facts.is_empty() {
        entry += &format!("\n{}", wrapped(&facts.join("; ")));
    }
    if let Kind::Choice(choices) = &setting.kind {
        entry.push('\n');
        for choice in choices {
            let line = wrapped(&format!("`{}`: {}", choice.name, choice.help));
            entry += &format!("- {}\n", line.trim_end().replace('\n', "\n  "));
        }
    }
    entry
}

/// Every flag that gives this setting.
fn flags(setting: &Declaration) -> Option<String> {
    let flag = setting.flag.as_ref()?;
    let value = value_name(setting);
    let main = match (&setting.kind, flag.positional) {
        (_, true) => format!("`{value}` (without a name)"),
        (Kind::Switch, _) if setting.default == true => format!("`--no-{}`", flag.name),
        (Kind::Switch, _) => format!("`--{}`", flag.name),
        _ if flag.missing.is_some() => format!("`--{} [{value}]`", flag.name),
        _ => format!("`--{} {value}`", flag.name),
    };
    let letter = flag.short.map(|letter| format!("`-{letter}`"));
    let dashes = |name: &str| if name.chars().count() == 1 { "-" } else { "--" };
    let switches =
        flag.switches.iter().map(|(name, value)| format!("`{}{name}` for `{value}`", dashes(name)));
    Some([main].into_iter().chain(letter).chain(switches).collect::<Vec<_>>().join(", "))
}

/// The name of a setting's value in the help.
pub fn value_name(setting: &Declaration) -> String {
    let given = setting.flag.as_ref().and_then(|flag| flag.value.clone());
    let name = || match &setting.kind {
        Kind::Integer { .. } | Kind::Number => "N",
        Kind::Percent => "PERCENT",
        Kind::Quantity(format) if format == "span" => "TIME",
        Kind::Quantity(format) if format == "byte-size" => "SIZE",
        Kind::Quantity(_) => "RATE",
        Kind::Switch | Kind::Text | Kind::Choice(_) => "NAME",
    };
    given.unwrap_or_else(|| name().to_owned())
}

/// Lines of at most [`COLUMNS`] characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one from the beginning");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(word.to_owned());
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}
