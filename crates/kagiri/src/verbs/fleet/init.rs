//! `kagiri fleet init`: credentials for every host of a fleet.

use std::path::{Path, PathBuf};

use base::placement::Wish;
use clap::Args;
use fleet::identity::{self, Auth, IdentityError, Init as Request, Made, Named};

use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// Make credentials: a certificate authority of the fleet's own, and a bundle for each host.
#[derive(Args)]
#[command(
    after_help = "DIR/ca stays where it was made, and should be kept safe: who has ca.key can pose as everybody. \
    DIR/bundles/coordinator goes to the machine on which 'kagiri run' is started, DIR/bundles/NAME to host NAME, over \
    an encrypted way. Nothing listens beyond one's own machine without.\n\n\
    Examples:\n  \
    kagiri fleet init fleet --coordinator desk,192.0.2.10 --host nas --host pc-[1-20]\n  \
    scp -r fleet/bundles/nas/. nas:/etc/kagiri/\n  \
    kagiri fleet init fleet --host pc-21                    a further host, later\n  \
    kagiri fleet init fleet --host nas --replace            a new certificate before the old one ends\n  \
    kagiri fleet init fleet --router hub,hub.example        and a zenohd.json5 for a router of zenoh's own\n  \
    kagiri fleet init fleet2 --password --coordinator desk --host nas    passwords inside TLS\n\n\
    See docs/fleet-security.md for what is checked where."
)]
pub struct Init {
    /// The fleet's folder; made, or extended
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The coordinator's name, and further names and addresses that hosts reach it by; needed for a new fleet
    #[arg(long, value_name = "NAME[,ADDRESS...]", value_delimiter = ',')]
    coordinator: Vec<String>,
    /// Hosts that are to join: nas, or pc-[1-20]; may be repeated
    #[arg(long, value_name = "NAMES")]
    host: Vec<String>,
    /// An external router (zenohd), and further names and addresses that it is reached by; may be repeated
    #[arg(long, value_name = "NAME[,ADDRESS...]")]
    router: Vec<String>,
    /// Let hosts log in with passwords, inside TLS, rather than with certificates of their own
    #[arg(long)]
    password: bool,
    /// For how long new certificates hold, in days; the authority's own holds for ten years
    #[arg(long, value_name = "N", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Make bundles anew that are there already; a host's policy.toml stays as it is
    #[arg(long)]
    replace: bool,
}

impl Init {
    /// Make them, and say what to do with them.
    pub fn perform(self) -> Outcome {
        let named = |words: Vec<String>| {
            let mut words = words.into_iter().map(|word| word.trim().to_owned());
            words.next().map(|name| Named { name, addresses: words.collect() })
        };
        let split = |text: &String| named(text.split(',').map(String::from).collect());
        let request = Request {
            coordinator: named(self.coordinator),
            routers: self.router.iter().filter_map(split).collect(),
            hosts: self.host.iter().map(spelled_out).collect::<Result<Vec<_>, _>>()?.concat(),
            auth: self.password.then_some(Auth::Passwords),
            days: self.days,
            replace: self.replace,
            dir: self.dir,
        };
        let made = identity::init(&request).map_err(|error| match error {
            IdentityError::Usage(problem) => Failure::Usage(problem),
            error => Failure::of_named(error),
        })?;
        output::print(&told(&request.dir, &made));
        Ok(Code::Measured)
    }
}

/// The names that a pattern such as `pc-[1-20]` spells out.
fn spelled_out(text: &String) -> Result<Vec<String>, Failure> {
    let wish = Wish { hosts: text.clone(), count: None, at_least: None };
    let names = wish.spelled_out().filter(|names| !names.is_empty());
    names.ok_or_else(|| Failure::usage(format!("--host {text}: write names, or ranges as in pc-[1-20]")))
}

fn told(dir: &Path, made: &Made) -> String {
    let mut text = String::new();
    if made.authority {
        let kind = match made.auth {
            Auth::Certificates => "certificates on both sides",
            Auth::Passwords => "passwords inside TLS",
        };
        let ca = dir.join("ca");
        text += &format!("A new fleet, with {kind}. Keep {} here, and safe.\n", ca.display());
    }
    for bundle in &made.bundles {
        text += &format!("made     {}\n", bundle.display());
    }
    for file in &made.kept {
        text += &format!("kept     {} as it was\n", file.display());
    }
    for file in &made.updated {
        text += &format!("changed  {}: copy it again, and restart what uses it\n", file.display());
    }
    text + "Copy each bundle to its machine over an encrypted way; join.txt in a host's bundle says how it joins.\n"
}
