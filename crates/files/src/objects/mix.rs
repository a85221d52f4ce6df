//! Which requests a worker sends, and in which proportion.

/// A step of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Writes an object: one that was deleted if there is any, else in place of another.
    Put,
    Get,
    /// S3 cannot append: reads an object and writes it anew, longer.
    Append,
    Head,
    Delete,
    List,
}

impl Step {
    /// Requests that it sends.
    #[must_use]
    pub fn requests(self) -> u64 {
        if self == Self::Append { 2 } else { 1 }
    }
}

/// The steps of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    steps: Vec<Step>,
    /// Each round in an order of its own.
    pub is_shuffled: bool,
}

/// Requests of a round.
const REQUESTS_MAX: usize = 1000;

impl Mix {
    /// The round of filebench's fileserver in requests: create and write, append, read, delete, stat.
    #[must_use]
    pub fn fileserver() -> Self {
        let steps = vec![Step::Put, Step::Append, Step::Get, Step::Delete, Step::Head];
        Self { steps, is_shuffled: false }
    }

    /// Reads `get=4,put=2,head=1,delete=1,list=1`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        for pair in text.split(',').map(str::trim) {
            let (name, weight) = pair
                .split_once('=')
                .ok_or_else(|| format!("'{pair}': write REQUEST=NUMBER, as in get=4,put=2"))?;
            let step = match name.trim() {
                "get" => Step::Get,
                "put" => Step::Put,
                "head" => Step::Head,
                "delete" => Step::Delete,
                "list" => Step::List,
                other => {
                    return Err(format!(
                        "there is no request '{other}'; there are get, put, head, delete and list"
                    ));
                }
            };
            let number = weight.trim().parse::<usize>().ok().filter(|number| *number <= REQUESTS_MAX);
            let number =
                number.ok_or_else(|| format!("'{pair}': expected a number from 0 to {REQUESTS_MAX}"))?;
            if steps.contains(&step) {
                return Err(format!("{} is given twice", name.trim()));
            }
            steps.extend(std::iter::repeat_n(step, number));
        }
        let mix = Self { steps, is_shuffled: true };
        match (mix.count(Step::Delete), mix.count(Step::Put)) {
            _ if mix.steps.is_empty() => Err("it has no request".to_owned()),
            _ if mix.steps.len() > REQUESTS_MAX => {
                Err(format!("its numbers add up to more than {REQUESTS_MAX}"))
            }
            (deletes, puts) if deletes > puts => {
                Err("more objects are deleted than put, so that they run out; raise put".to_owned())
            }
            _ => Ok(mix),
        }
    }

    fn count(&self, step: Step) -> usize {
        self.steps.iter().filter(|other| **other == step).count()
    }

    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Objects that a worker must have, so that one is left when the deletes of a round come first.
    #[must_use]
    pub fn objects_min(&self) -> u64 {
        self.count(Step::Delete) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_has_its_ratio_and_refuses_nonsense() {
        let mix = Mix::parse("get=4, put=2,head=1,delete=1,list=1").unwrap();
        assert_eq!((mix.steps().len(), mix.count(Step::Get), mix.objects_min()), (9, 4, 2));
        for (wrong, words) in [
            ("", "write REQUEST=NUMBER"),
            ("get", "write REQUEST=NUMBER"),
            ("copy=1", "no request 'copy'"),
            ("get=x", "expected a number"),
            ("get=-1", "expected a number"),
            ("get=0", "no request"),
            ("get=1,get=2", "twice"),
            ("delete=2,put=1", "run out"),
        ] {
            let error = Mix::parse(wrong).unwrap_err();
            assert!(error.contains(words), "{wrong}: {error}");
        }
    }
}
