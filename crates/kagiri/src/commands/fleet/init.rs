//! `kagiri fleet init`: makes credentials for every host of a fleet.

use std::path::{Path, PathBuf};

use base::placement::Wish;
use clap::Args;
use fleet::identity::{self, Auth, DAYS_DEFAULT, IdentityError, InitOptions, Initialized, ServerName};

use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// Make credentials: a certificate authority for the fleet, and a bundle for each host.
#[derive(Args)]
#[command(
    after_help = "Keep DIR/ca on this machine and safe: with ca.key anybody can impersonate every member. \
    Copy DIR/bundles/coordinator to the coordinator, which is the machine where you start measurements, and \
    DIR/bundles/NAME to host NAME, over an encrypted connection. Without credentials, an agent and its \
    coordinator must run on one machine.\n\n\
    Examples:\n  \
    kagiri fleet init fleet --coordinator desk,192.0.2.10 --host nas,pc-[1-20]\n  \
    scp -r fleet/bundles/nas/. nas:/etc/kagiri/\n  \
    kagiri fleet init fleet --host pc-21               add a host later\n  \
    kagiri fleet init fleet --host nas --replace       renew a certificate\n  \
    kagiri fleet init fleet --revoke nas               withdraw its certificates\n  \
    kagiri fleet init fleet --router hub,hub.example   add a router\n  \
    kagiri fleet init fleet2 --password --coordinator desk --host nas   passwords\n\n\
    See docs/fleet-security.md for the security model."
)]
pub struct Init {
    /// Directory of the fleet; created, or extended
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Name of the coordinator, and other names and addresses by which agents may reach it; required for a
    /// new fleet
    #[arg(long, value_name = "NAME[,ADDRESS...]", value_delimiter = ',')]
    coordinator: Vec<String>,
    /// Hosts that may join, such as nas,pc-[1-20]; repeatable
    #[arg(long, value_name = "NAMES")]
    host: Vec<String>,
    /// Name of a Zenoh router (zenohd), and other names and addresses by which agents may reach it; writes
    /// its zenohd.json5; repeatable
    #[arg(long, value_name = "NAME[,ADDRESS...]")]
    router: Vec<String>,
    /// Remove these hosts, or coordinator@NAME, and revoke all their certificates; repeatable
    #[arg(long, value_name = "NAMES")]
    revoke: Vec<String>,
    /// Let hosts log in with passwords inside TLS, instead of with certificates
    #[arg(long)]
    password: bool,
    /// Days for which new certificates are valid (that of the authority: ten years)
    #[arg(long, value_name = "N", default_value_t = DAYS_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Replace existing bundles, but keep their policy.toml
    #[arg(long)]
    replace: bool,
    /// What stands where options were expected
    #[arg(hide = true)]
    surplus: Vec<String>,
}

impl Init {
    pub fn run(self) -> Outcome {
        if let Some(word) = self.surplus.first() {
            return Err(Failure::usage(format!(
                "unexpected argument '{word}'; name the hosts with --host, and the coordinator of a new \
                 fleet with --coordinator: kagiri fleet init {} --coordinator NAME --host {}",
                self.dir.display(),
                self.surplus.join(",")
            )));
        }
        let named = |words: Vec<String>| {
            let mut words = words.into_iter().map(|word| word.trim().to_owned());
            words.next().map(|name| ServerName { name, addresses: words.collect() })
        };
        let split = |text: &String| named(text.split(',').map(String::from).collect());
        let request = InitOptions {
            coordinator: named(self.coordinator),
            routers: self.router.iter().filter_map(split).collect(),
            hosts: spelled_out("--host", &self.host)?,
            revoke: spelled_out("--revoke", &self.revoke)?,
            auth: self.password.then_some(Auth::Passwords),
            days: self.days,
            replace: self.replace,
            dir: self.dir,
        };
        let made = identity::init(&request).map_err(|error| match error {
            IdentityError::Usage(problem) => Failure::Usage(problem),
            error => Failure::of_named(error),
        })?;
        output::print(&summary(&request.dir, &made))?;
        Ok(Code::Measured)
    }
}

/// The names that patterns such as `pc-[1-20]` spell out.
fn spelled_out(option: &str, texts: &[String]) -> Result<Vec<String>, Failure> {
    let names = |text: &String| {
        let wish = Wish { hosts: text.clone(), count: None, at_least: None };
        let names = wish.spelled_out().filter(|names| !names.is_empty());
        names
            .ok_or_else(|| Failure::usage(format!("{option} {text}: write names, or ranges as in pc-[1-20]")))
    };
    Ok(texts.iter().map(names).collect::<Result<Vec<_>, _>>()?.concat())
}

fn summary(dir: &Path, made: &Initialized) -> String {
    let mut text = String::new();
    if made.authority {
        let kind = match made.auth {
            Auth::Certificates => "certificates on both sides",
            Auth::Passwords => "passwords inside TLS",
        };
        let ca = dir.join("ca");
        text += &format!("New fleet with {kind}. Keep {} on this machine and safe.\n", ca.display());
    }
    for (member, certificates) in &made.revoked {
        text += &format!("revoked  {member}: certificates: {certificates}\n");
    }
    for bundle in &made.bundles {
        text += &format!("made     {}\n", bundle.display());
    }
    for file in &made.kept {
        text += &format!("kept     {} as it was\n", file.display());
    }
    for file in &made.updated {
        text += &format!("changed  {}: copy it again and restart the program that uses it\n", file.display());
    }
    if !made.bundles.is_empty() {
        text += "Copy each bundle to its machine over an encrypted connection; join.txt in a host's bundle \
        explains how to join.\n";
    }
    text
}
