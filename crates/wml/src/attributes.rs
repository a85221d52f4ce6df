//! The attributes of one definition, read by name and type.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use base::near::did_you_mean;

use crate::distribution::{Distribution, Law};
use crate::error::Problem;
use crate::lexer::shortened;
use crate::model::Number;
use crate::syntax::{Attribute, Value};
use crate::variables::{Variables, described};

type Read<T> = Result<T, Problem>;

/// Further names of attributes.
const SAME: [(&str, &str); 3] = [("filesize", "size"), ("filename", "filesetname"), ("rotatefd", "opennext")];

pub(crate) struct Attributes<'a> {
    variables: &'a Variables,
    line: u32,
    given: Vec<&'a Attribute>,
}

impl<'a> Attributes<'a> {
    /// # Errors
    /// An attribute that is not one of `known`, or one that is given twice. Names with `$` are parameters,
    /// which only composites have.
    pub(crate) fn new(
        variables: &'a Variables,
        line: u32,
        what: &str,
        attributes: &'a [Attribute],
        known: &[&str],
        has_parameters: bool,
    ) -> Result<Self, Problem> {
        let mut given: Vec<&Attribute> = Vec::new();
        for attribute in attributes.iter().filter(|one| !(has_parameters && one.name.starts_with('$'))) {
            let name = first_name(&attribute.name);
            if !known.contains(&name) {
                let near = did_you_mean(&attribute.name, known.iter().copied());
                let found = format!("'{}'{near}", shortened(&attribute.name));
                let expected = format!("an attribute of {what} ({})", known.join(", "));
                return Err(Problem::expected(attribute.line, &expected, &found));
            }
            if given.iter().any(|other| first_name(&other.name) == name) {
                return Err(Problem::new(attribute.line, format!("the attribute '{name}' is given twice")));
            }
            given.push(attribute);
        }
        Ok(Self { variables, line, given })
    }

    fn get(&self, name: &str) -> Option<&'a Attribute> {
        self.given.iter().copied().find(|attribute| first_name(&attribute.name) == name)
    }

    /// The value, if it is a variable the one that it stands for.
    pub(crate) fn value(&self, name: &str) -> Result<Option<&'a Value>, Problem> {
        let found = self.get(name).and_then(|one| Some((one.line, one.value.as_ref()?)));
        found.map(|(line, value)| self.variables.resolve(line, value)).transpose()
    }

    /// Reads what stands behind the name with `read`.
    fn read<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&Variables, u32, &Value) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        let Some(attribute) = self.get(name) else { return Ok(None) };
        let Some(value) = &attribute.value else {
            return Err(Problem::new(attribute.line, format!("'{name}' needs {expected}: {name}=...")));
        };
        let named = |problem: Problem| Problem { text: format!("{name}: {}", problem.text), ..problem };
        read(self.variables, attribute.line, value).map(Some).map_err(named)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        self.read(name, "a text", Variables::text)
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<Number>, Problem> {
        self.read(name, "a number", number)
    }

    pub(crate) fn integer(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.read(name, "a number", integer)
    }

    /// A number within these bounds, which may be below zero.
    pub(crate) fn bounded(&self, name: &str, bounds: RangeInclusive<i64>) -> Result<Option<i64>, Problem> {
        let expected = format!("a number from {} to {}", bounds.start(), bounds.end());
        self.read(name, &expected, |variables, line, value| {
            let number = signed(variables, line, value)?;
            let is_within = bounds.contains(&number);
            is_within.then_some(number).ok_or_else(|| Problem::expected(line, &expected, &number.to_string()))
        })
    }

    /// Without a value it is set.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None => Ok(false),
            Some(attribute) if attribute.value.is_none() => Ok(true),
            Some(_) => Ok(self.read(name, "true or false", bool)?.unwrap_or(false)),
        }
    }

    /// The name, which every definition has.
    pub(crate) fn name(&self, what: &str) -> Result<String, Problem> {
        match self.text("name")?.filter(|name| !name.is_empty()) {
            Some(name) => Ok(name),
            None => Err(Problem::new(self.line, format!("{what} needs a name: name=..."))),
        }
    }
}

fn first_name(name: &str) -> &str {
    SAME.iter().find(|(other, _)| *other == name).map_or(name, |(_, first)| first)
}

pub(crate) fn number(variables: &Variables, line: u32, value: &Value) -> Read<Number> {
    match variables.resolve(line, value)? {
        Value::Random(attributes) => Ok(Number::Random(Box::new(random(variables, line, attributes)?))),
        Value::Custom(attributes) => Ok(Number::Random(Box::new(custom(variables, line, attributes)?))),
        _ => integer(variables, line, value).map(Number::Constant),
    }
}

/// A number that is always the same; also of attributes of random variables, which therefore cannot nest.
pub(crate) fn integer(variables: &Variables, line: u32, value: &Value) -> Read<u64> {
    match variables.resolve(line, value)? {
        Value::Integer(number) => Ok(*number),
        Value::Text(pieces) => {
            let text = variables.pieces(line, pieces)?;
            let number = text.trim().parse();
            number.map_err(|_| Problem::expected(line, "a number", &format!("'{}'", shortened(&text))))
        }
        other => Err(Problem::expected(line, "a number", &described(other))),
    }
}

/// A word such as `-5` is a number here.
fn signed(variables: &Variables, line: u32, value: &Value) -> Read<i64> {
    let below_zero = match variables.resolve(line, value)? {
        Value::Text(pieces) => variables.pieces(line, pieces)?.trim().parse::<i64>().ok(),
        _ => None,
    };
    match below_zero {
        Some(number) => Ok(number),
        None => Ok(i64::try_from(integer(variables, line, value)?).unwrap_or(i64::MAX)),
    }
}

pub(crate) fn bool(variables: &Variables, line: u32, value: &Value) -> Read<bool> {
    match variables.resolve(line, value)? {
        Value::Bool(is_set) => Ok(*is_set),
        Value::Integer(number) => Ok(*number != 0),
        other => Err(Problem::expected(line, "true or false", &described(other))),
    }
}

/// `randvar(...)`
fn random(variables: &Variables, line: u32, attributes: &[Attribute]) -> Read<Distribution> {
    const KNOWN: &[&str] = &["type", "seed", "gamma", "mean", "min", "round", "randsrc", "randtable"];
    let given = Attributes::new(variables, line, "randvar", attributes, KNOWN, false)?;
    let kind = given.text("type")?.unwrap_or_else(|| "gamma".to_owned());
    let (min, mean) =
        (given.integer("min")?.unwrap_or(0) as f64, given.integer("mean")?.map(|mean| mean as f64));
    let shape = given.integer("gamma")?.unwrap_or(1500) as f64 / 1000.0;
    let round = given.integer("round")?.unwrap_or(0);
    let law = match kind.as_str() {
        "uniform" => {
            let mean = mean.unwrap_or(min);
            if mean < min {
                return Err(Problem::new(line, "the mean of a random variable must not be below its min"));
            }
            Law::Uniform { low: min, high: 2.0 * mean - min }
        }
        "gamma" if shape == 0.0 => {
            let mean = mean.unwrap_or(min).max(min);
            Law::Uniform { low: mean, high: mean }
        }
        "gamma" => {
            let mean = mean.unwrap_or(shape);
            Law::Gamma { low: min, shape, scale: (mean - min).max(0.0) / shape }
        }
        "tabular" => table(line, &given, mean)?,
        other => {
            let found = format!("'{}'", shortened(other));
            return Err(Problem::expected(line, "the type uniform, gamma or tabular", &found));
        }
    };
    Ok(Distribution { law, round, min: 0, max: None })
}

fn table(line: u32, given: &Attributes<'_>, mean: Option<f64>) -> Read<Law> {
    let Some(Value::Table(rows)) = given.value("randtable")? else {
        return Err(Problem::new(line, "a tabular variable needs randtable={{percent, low, high}, ...}"));
    };
    let mut all = 0u64;
    let mut of_parts = 0.0;
    for [percent, low, high] in rows {
        all = all.saturating_add(*percent);
        of_parts += *percent as f64 / 100.0 * (*low as f64 + *high as f64) / 2.0;
        if high < low {
            return Err(Problem::new(
                line,
                "a row of randtable is {percent, low, high}, and low is above high",
            ));
        }
    }
    if all != 100 {
        return Err(Problem::new(line, format!("the percents of randtable make {all}, not 100")));
    }
    let factor = mean.filter(|_| of_parts > 0.0).map_or(1.0, |mean| mean / of_parts);
    let parts = rows.iter().map(|[percent, low, high]| (*percent, *low as f64, *high as f64)).collect();
    Ok(Law::Table { parts, factor })
}

/// `cvar(...)`
fn custom(variables: &Variables, line: u32, attributes: &[Attribute]) -> Read<Distribution> {
    const KNOWN: &[&str] = &["type", "parameters", "min", "max", "round"];
    let given = Attributes::new(variables, line, "cvar", attributes, KNOWN, false)?;
    let kind = given.text("type")?.unwrap_or_default();
    let text = given.text("parameters")?.unwrap_or_default();
    let mut parameters = BTreeMap::new();
    for pair in text.split(';').filter(|pair| !pair.trim().is_empty()) {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        match pair.split_once(':').and_then(|(name, value)| Some((name.trim(), number(value)?))) {
            Some((name, value)) => drop(parameters.insert(name.to_owned(), value)),
            None => {
                return Err(Problem::expected(
                    line,
                    "parameters as name:number;name:number",
                    &shortened(pair),
                ));
            }
        }
    }
    let mut take = |name: &str, default: f64| parameters.remove(name).unwrap_or(default);
    let law = match kind.strip_prefix("cvar-").unwrap_or(&kind) {
        "gamma" => {
            let (mean, shape) = (take("mean", 4096.0), take("gamma", 1.5));
            Law::Gamma { low: 0.0, shape, scale: mean / shape }
        }
        "exponential" => Law::Exponential { mean: take("mean", 4096.0) },
        "uniform" => Law::Uniform { low: take("lower", 0.0), high: take("upper", 1.0) },
        "normal" => Law::Normal { mean: take("mean", 0.0), sigma: take("sigma", 1.0) },
        "lognormal" => Law::LogNormal { shape: take("shape", 1.0), scale: take("scale", 1.0) },
        "weibull" => Law::Weibull { shape: take("shape", 1.0), scale: take("scale", 1.0) },
        "triangular" => {
            Law::Triangular { lower: take("lower", 0.0), upper: take("upper", 1.0), mode: take("mode", 0.5) }
        }
        "erlang" => Law::Erlang { shape: take("shape", 1.0), rate: take("rate", 1.0) },
        other => {
            let expected = "the type cvar-gamma, -exponential, -uniform, -normal, -lognormal, -weibull, \
                -triangular or -erlang";
            return Err(Problem::expected(line, expected, &format!("'{}'", shortened(other))));
        }
    };
    let shape = match law {
        Law::Gamma { shape, .. } | Law::Weibull { shape, .. } | Law::Erlang { shape, .. } => shape,
        _ => 1.0,
    };
    if shape <= 0.0 {
        return Err(Problem::new(line, format!("the shape of {kind} must be above 0")));
    }
    if let Some(name) = parameters.keys().next() {
        return Err(Problem::new(line, format!("{kind} has no parameter '{}'", shortened(name))));
    }
    let (min, max) = (given.integer("min")?.unwrap_or(0), given.integer("max")?);
    Ok(Distribution { law, round: given.integer("round")?.unwrap_or(0), min, max })
}
