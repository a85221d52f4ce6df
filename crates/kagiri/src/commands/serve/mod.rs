//! `kagiri serve`: the console in the browser.

mod known;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use web::{Config, TlsFiles};

use self::known::KnownCommands;
use crate::exit::{Code, Failure, Outcome};
use crate::host_facts::host_name;
use crate::hosts::HostArgs;
use crate::stop::stop_flag;
use crate::{dirs, output};

const LISTEN: &str = "127.0.0.1:7890";

/// Serve the console: plans, runs, hosts, settings and policies in the browser.
#[derive(Args)]
#[command(
    after_help = "Prints an address with a login token; open it in a browser. Who has the token can do \
    what you can do with kagiri on this machine. Runs are processes of their own: they go on if the server \
    ends, and a new server finds them. docs/console.md describes the pages, the API and its security.\n\n\
    Examples:\n  \
    kagiri serve\n  \
    ssh -L 7890:127.0.0.1:7890 nas kagiri serve    the console of another host\n  \
    kagiri serve --listen 10.0.0.2:7890 --tls cert.pem --key key.pem --name nas.example\n  \
    kagiri serve --fleet tls/0.0.0.0:7447 --credentials fleet/bundles/coordinator"
)]
pub struct Serve {
    /// Where to listen; beyond loopback only with --tls
    #[arg(long, value_name = "ADDRESS:PORT", default_value = LISTEN)]
    listen: SocketAddr,
    /// Certificate (PEM), with those of the authorities between
    #[arg(long, value_name = "FILE", requires = "key")]
    tls: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls")]
    key: Option<PathBuf>,
    /// A host name by which browsers reach this server; repeatable [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Where agents connect, for plans with other hosts: as --listen of 'kagiri run'
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "via")]
    fleet: Option<String>,
    /// Meet the agents at this Zenoh router (zenohd)
    #[arg(long, value_name = "ENDPOINT")]
    via: Option<String>,
    /// This machine's credentials, for --fleet or --via
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Read the pages from this folder at each request (for work on them)
    #[arg(long, value_name = "DIR", hide = true)]
    pages: Option<PathBuf>,
}

impl Serve {
    pub fn run(self) -> Outcome {
        let stop = stop_flag()?;
        let hosts = self.hosts();
        if let (None, Some(dir)) = (hosts.listen.as_ref().or(hosts.via.as_ref()), &self.credentials) {
            return Err(Failure::usage(format!(
                "--credentials {}: say where agents join, with --fleet or --via",
                dir.display()
            )));
        }
        web::check_listen(self.listen, self.tls.is_some()).map_err(Failure::Usage)?;
        let data_dir = std::path::absolute(dirs::data_dir()?).context("cannot name the folder of results")?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let config = Config {
            listen: self.listen,
            names: self.name.clone(),
            tls: self.tls.zip(self.key).map(|(certificates, key)| TlsFiles { certificates, key }),
            data_dir,
            program,
            version: env!("CARGO_PKG_VERSION"),
            host_name: host_name()?,
            fleet: fleet_words(&hosts),
            pages: self.pages,
            commands: Arc::new(KnownCommands::new(hosts)),
        };
        let name = self.name.into_iter().next().unwrap_or_else(|| config.host_name.clone());
        let ready = |address: SocketAddr, token: &str| {
            let place = match address.ip().is_unspecified() {
                true => format!("{name}:{}", address.port()),
                false => address.to_string(),
            };
            // A closed pipe is no reason to end; the token is in its file, too.
            let _ = output::print(&format!("{scheme}://{place}/#token={token}\n"));
            output::say("Open this address in a browser; Ctrl-C ends the server, and no run");
        };
        web::serve(config, stop, ready)?;
        Ok(Code::Measured)
    }

    fn hosts(&self) -> HostArgs {
        HostArgs {
            listen: self.fleet.clone(),
            via: self.via.clone(),
            credentials: self.credentials.clone(),
            ..HostArgs::default()
        }
    }
}

/// The arguments for commands of this program; none without a fleet.
fn fleet_words(hosts: &HostArgs) -> Vec<OsString> {
    let mut words = Vec::new();
    let texts = [("--listen=", &hosts.listen), ("--via=", &hosts.via)];
    words.extend(texts.iter().filter_map(|(flag, text)| Some(format!("{flag}{}", text.as_ref()?).into())));
    words.extend(hosts.credentials.iter().map(|dir| {
        // Runs have folders of their own.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        let mut word = OsString::from("--credentials=");
        word.push(dir);
        word
    }));
    words
}
