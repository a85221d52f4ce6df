//! Reads the policy file (TOML); every error names its line.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base::permit::SystemChange;
use base::units::BitRate;
use serde::Deserialize;
use toml::Spanned;

use super::pattern::Pattern;
use super::peers::PeerRange;
use super::{HostInfo, Located, PolicyError, Program, Rule, SYSTEM_CHANGES};

const TEXT_BYTES_MAX: u64 = 64 << 10;
const RULES_MAX: usize = 100;

type Texts = Spanned<Vec<Spanned<String>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    allow: Vec<Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    coordinator: Option<Spanned<String>>,
    parts: Texts,
    peers: Option<Texts>,
    rate_max: Option<Spanned<BitRate>>,
    directories: Option<Texts>,
    system_changes: Option<Spanned<toml::Value>>,
    programs: Option<Texts>,
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    let mut file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if metadata.mode() & 0o002 != 0 {
        return Err(format!("everybody can write it; run 'chmod o-w {}'", path.display()));
    }
    let mut text = String::new();
    let read = file.by_ref().take(TEXT_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(text)
}

pub(super) fn parse(text: &str, owner: &HostInfo) -> Result<Vec<Rule>, PolicyError> {
    let error = |problem: String, line| PolicyError::Text { problem, line };
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(error(format!("it is longer than {TEXT_BYTES_MAX} bytes"), None));
    }
    let lines = Lines(text);
    let file: FileText = toml::from_str(text)
        .map_err(|wrong| error(wrong.message().to_owned(), wrong.span().map(|span| lines.at(span.start))))?;
    if file.allow.len() > RULES_MAX {
        return Err(error(format!("it has more than {RULES_MAX} rules"), None));
    }
    let rules: Vec<_> = file.allow.iter().map(|rule| lines.rule(rule, owner)).collect::<Result<_, _>>()?;
    for (index, rule) in rules.iter().enumerate() {
        if let Some(earlier) = rules[..index].iter().find(|earlier| covers(earlier, rule)) {
            let problem = format!(
                "this rule is never reached: the rule at line {} covers all its parts and coordinators, and \
                 the first that fits decides; put the narrower rule first",
                earlier.line.unwrap_or_default()
            );
            return Err(error(problem, rule.line));
        }
    }
    Ok(rules)
}

/// Whether `earlier` applies wherever `rule` applies.
fn covers(earlier: &Rule, rule: &Rule) -> bool {
    earlier.coordinator.covers(&rule.coordinator)
        && rule.parts.iter().all(|part| earlier.parts.iter().any(|pattern| pattern.covers(part)))
}

struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn at(&self, offset: usize) -> usize {
        self.0.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
    }

    fn rule(&self, rule: &Spanned<RuleText>, owner: &HostInfo) -> Result<Rule, PolicyError> {
        let line = Some(self.at(rule.span().start));
        let rule = rule.as_ref();
        let coordinator = match &rule.coordinator {
            Some(text) => self.read(text, "coordinator", Pattern::new)?,
            None => Pattern::any(),
        };
        let parts = self.list(Some(&rule.parts), "parts", line, Pattern::new)?;
        if parts.value.is_empty() {
            return Err(self.error(
                &rule.parts,
                "parts",
                "the list is empty, so the rule applies to nothing",
            ));
        }
        let directory = |text: &str| directory(text, owner);
        Ok(Rule {
            line,
            coordinator,
            parts: parts.value,
            peers: self.list(rule.peers.as_ref(), "peers", line, PeerRange::new)?,
            rate_max: rule
                .rate_max
                .as_ref()
                .map(|rate| Located { value: *rate.as_ref(), line: Some(self.at(rate.span().start)) }),
            directories: self.list(rule.directories.as_ref(), "directories", line, directory)?,
            system_changes: self.changes(rule.system_changes.as_ref(), line)?,
            programs: self.list(rule.programs.as_ref(), "programs", line, program)?,
            sending_bit_per_s: Arc::default(),
        })
    }

    fn error<T>(&self, place: &Spanned<T>, key: &str, problem: impl std::fmt::Display) -> PolicyError {
        PolicyError::Text { problem: format!("{key}: {problem}"), line: Some(self.at(place.span().start)) }
    }

    fn read<T>(
        &self,
        text: &Spanned<String>,
        key: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, PolicyError> {
        read(text.as_ref()).map_err(|problem| self.error(text, key, problem))
    }

    /// A list; empty, at the rule's line, if absent.
    fn list<T>(
        &self,
        texts: Option<&Texts>,
        key: &str,
        rule: Option<usize>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Located<Vec<T>>, PolicyError> {
        let Some(texts) = texts else { return Ok(Located { value: Vec::new(), line: rule }) };
        let values = texts.as_ref().iter().map(|text| self.read(text, key, &read));
        Ok(Located { value: values.collect::<Result<_, _>>()?, line: Some(self.at(texts.span().start)) })
    }

    fn changes(
        &self,
        value: Option<&Spanned<toml::Value>>,
        rule: Option<usize>,
    ) -> Result<Located<Vec<SystemChange>>, PolicyError> {
        let Some(value) = value else { return Ok(Located { value: Vec::new(), line: rule }) };
        let names = || SYSTEM_CHANGES.map(|(name, _)| format!("\"{name}\"")).join(", ");
        let wrong =
            || self.error(value, "system_changes", format!("write true, false, or a list of {}", names()));
        let kind = |item: &toml::Value| {
            let found = SYSTEM_CHANGES.iter().find(|(name, _)| item.as_str() == Some(name));
            found.map(|(_, kind)| *kind).ok_or_else(wrong)
        };
        let kinds = match value.as_ref() {
            toml::Value::Boolean(true) => SYSTEM_CHANGES.iter().map(|(_, kind)| *kind).collect(),
            toml::Value::Boolean(false) => Vec::new(),
            toml::Value::Array(items) => items.iter().map(kind).collect::<Result<_, _>>()?,
            _ => return Err(wrong()),
        };
        Ok(Located { value: kinds, line: Some(self.at(value.span().start)) })
    }
}

fn directory(text: &str, owner: &HostInfo) -> Result<PathBuf, String> {
    if text == "data" {
        return Ok(owner.data_dir.clone());
    }
    let path = PathBuf::from(text);
    if !path.is_absolute()
        || path.components().any(|part| part == Component::ParentDir)
        || text.contains('\0')
    {
        return Err(format!(
            "'{text}' must be an absolute path without '..', or \"data\" for the agent's data directory"
        ));
    }
    Ok(path)
}

fn program(text: &str) -> Result<Program, String> {
    if text == "any" {
        return Ok(Program::Any);
    }
    let fits = !text.is_empty() && (text.starts_with('/') || !text.contains('/')) && !text.contains('\0');
    match fits {
        true => Ok(Program::Named(text.into())),
        false => Err(format!("'{text}' must be an absolute path, a name without '/', or \"any\"")),
    }
}
