//! Checks the values of a lab file, and resolves groups and patterns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use base::names::first_of;
use base::units::{BitRate, ByteSize, Span};
use sys::disk::FileSystem;
use sys::netns::Subnet;
use toml::Spanned;

use super::raw::{HostFile, LabFile, LinkFile, Setting, Share};
use super::steps::check as check_steps;
use super::{Disk, Host, Lab, Link, Mount, RATE_RANGE, Step, is_possible, matches};

const NAMED_MAX: usize = 12;
/// Limit that a machine can make in an acceptable time.
const HOSTS_MAX: usize = 1000;
/// Limit of interface names (linux/if.h).
const SWITCH_NAME_MAX: usize = 15;
/// `kagiri-PID-LAB-HOST` names a control group; 64 bytes are for lab and host.
const NAME_MAX: usize = 24;
const SUBNET: &str = "10.77.0.0/16";

pub(super) struct Wrong {
    pub(super) problem: String,
    pub(super) at: Option<usize>,
}

type Checked<T> = Result<T, Wrong>;

fn wrong<T>(at: usize, problem: impl Into<String>) -> Checked<T> {
    Err(Wrong { problem: problem.into(), at: Some(at) })
}

pub(super) fn check(file: LabFile) -> Checked<Lab> {
    let name = plain_name("name", &file.name, NAME_MAX)?;
    let subnet = subnet(file.subnet.as_ref())?;
    // Tables are unordered; keep the order of the file.
    let mut groups: Vec<_> = file.host.into_iter().collect();
    groups.sort_by_key(|(key, _)| key.span().start);
    let mut hosts = Vec::new();
    for (key, group) in groups {
        hosts.extend(hosts_of(&key, group, &subnet)?);
        if hosts.len() > HOSTS_MAX {
            return wrong(key.span().start, format!("a lab has at most {HOSTS_MAX} hosts"));
        }
    }
    if hosts.is_empty() {
        return Err(Wrong { problem: "a lab has at least one host: add [host.NAME]".to_owned(), at: None });
    }
    let mut switches: Vec<_> = file.switch.into_keys().collect();
    switches.sort_by_key(|key| key.span().start);
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for host in &hosts {
        if !names.insert(&host.name) {
            let problem = format!("two hosts have the name '{}', one of them in a group", host.name);
            return Err(Wrong { problem, at: None });
        }
    }
    for key in &switches {
        let switch = plain_name("switch", key, SWITCH_NAME_MAX)?;
        // Names of the lab's own interfaces.
        if switch == "lo" || switch.strip_prefix("port").is_some_and(|rest| !rest.contains('-')) {
            return wrong(key.span().start, format!("switch: the lab itself uses the name '{switch}'"));
        }
        if !names.insert(key.get_ref()) {
            return wrong(key.span().start, format!("'{switch}' is a host as well; names must be unique"));
        }
    }
    let switches: Vec<String> = switches.into_iter().map(Spanned::into_inner).collect();
    let mut links = Vec::new();
    for link in file.link {
        links.extend(links_of(&link, &hosts, &switches)?);
    }
    let router = match file.router {
        Some(router) if hosts.iter().any(|host| host.name == *router.get_ref()) => Some(router.into_inner()),
        Some(router) => {
            let problem = format!("router: there is no host '{}'", router.get_ref());
            return wrong(router.span().start, problem);
        }
        None => None,
    };
    Ok(Lab { name, subnet, router, agents: file.agents, seed: file.seed, hosts, switches, links })
}

/// Letters, digits and `-`, starting with a letter.
fn plain_name(key: &str, name: &Spanned<String>, bytes_max: usize) -> Checked<String> {
    let text = name.get_ref();
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !plain || text.len() > bytes_max || !text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        let problem = format!(
            "{key}: '{text}' is no name here; use at most {bytes_max} letters, digits and '-', a letter first"
        );
        return wrong(name.span().start, problem);
    }
    Ok(text.clone())
}

fn subnet(text: Option<&Spanned<String>>) -> Checked<Subnet> {
    let (text, at) = text.map_or((SUBNET, 0), |text| (text.get_ref().as_str(), text.span().start));
    match text.parse::<Subnet>() {
        Ok(subnet) if !(8..=24).contains(&subnet.prefix_bits()) => {
            wrong(at, format!("subnet: '{text}' is not within /8 to /24"))
        }
        // "This network", multicast, and what is reserved above it (RFC 6890).
        Ok(subnet) if matches!(subnet.host(1).octets()[0], 0 | 224..) => {
            wrong(at, format!("subnet: '{text}' cannot be addresses of hosts; use one like {SUBNET}"))
        }
        Ok(subnet) => Ok(subnet),
        Err(_) => wrong(at, format!("subnet: '{text}' is not a network like {SUBNET}")),
    }
}

fn hosts_of(key: &Spanned<String>, group: HostFile, subnet: &Subnet) -> Checked<Vec<Host>> {
    let name = plain_name("host", key, NAME_MAX)?;
    if name == "switches" {
        return wrong(key.span().start, "host: 'switches' is the lab's own name for where switches are");
    }
    let quota = group.cpu_quota_percent;
    if let Some(quota) = quota.as_ref().filter(|quota| !(1.0..=100_000.0).contains(quota.get_ref())) {
        let problem = format!("cpu_quota_percent: {} is not within 1..100000", quota.get_ref());
        return wrong(quota.span().start, problem);
    }
    if let Some(disk) = &group.disk {
        check_disk(disk)?;
    }
    if let Some(mount) = &group.mount {
        check_mount(mount)?;
    }
    let environment = group.environment.into_iter().map(variable).collect::<Checked<_>>()?;
    let environment: BTreeMap<String, String> = environment;
    let mut settings = BTreeMap::new();
    for (setting, value) in group.settings {
        let path = setting_path(&setting)?;
        let value = match value.into_inner() {
            Setting::Number(number) => number.to_string(),
            Setting::Text(text) => text,
        };
        settings.insert(path, value);
    }
    let first = group.address.as_ref().map(|address| *address.get_ref());
    let host = |name: String, number: u32| Host {
        name,
        cpu_quota_percent: quota.as_ref().map(|quota| *quota.get_ref()),
        address: first.map(|first| Ipv4Addr::from(u32::from(first).wrapping_add(number))),
        settings: settings.clone(),
        disk: group.disk.as_ref().map(|disk| disk.get_ref().clone()),
        mount: group.mount.as_ref().map(|mount| mount.get_ref().clone()),
        run: group.run.clone(),
        environment: environment.clone(),
    };
    let hosts: Vec<Host> = match &group.count {
        None => vec![host(name, 0)],
        Some(count) if (1..=HOSTS_MAX as u32).contains(count.get_ref()) => {
            (0..*count.get_ref()).map(|number| host(format!("{name}-{}", number + 1), number)).collect()
        }
        Some(count) => {
            let problem = format!("count: {} is not within 1..{HOSTS_MAX}", count.get_ref());
            return wrong(count.span().start, problem);
        }
    };
    let outside = hosts.iter().filter_map(|host| host.address).find(|address| !subnet.contains(*address));
    match (outside, &group.address) {
        (Some(outside), Some(address)) => {
            let problem = format!("address: {outside} is not within the lab's subnet {subnet}");
            wrong(address.span().start, problem)
        }
        _ => Ok(hosts),
    }
}

/// Its files are of up to 64 MiB.
const AGED_MIB_LEAST: u64 = 512;

fn check_disk(disk: &Spanned<Disk>) -> Checked<()> {
    let (at, disk) = (disk.span().start, disk.get_ref());
    if !(16 << 20..=16 << 40).contains(&disk.size.bytes()) {
        return wrong(at, format!("disk.size: {} is not within 16MiB..16TiB", disk.size));
    }
    // mkfs reports it only with a page about its options.
    let least_mib = match disk.file_system {
        FileSystem::Xfs => 300,
        FileSystem::Btrfs => 109,
        FileSystem::Ext3 | FileSystem::Ext4 => 16,
    };
    if disk.size.bytes() < least_mib << 20 {
        let name = disk.file_system.name();
        return wrong(
            at,
            format!("disk.size: {} is too small for {name}, which needs {least_mib}MiB", disk.size),
        );
    }
    if disk.age.is_some() && disk.size.bytes() < AGED_MIB_LEAST << 20 {
        let problem =
            format!("disk.size: {} is too small to be aged; use at least {AGED_MIB_LEAST}MiB", disk.size);
        return wrong(at, problem);
    }
    if let Some(pool) = disk.pool {
        check_pool(pool, disk).or_else(|problem| wrong(at, problem))?;
    }
    for (key, limit) in [("read_limit", disk.read_limit), ("write_limit", disk.write_limit)] {
        if limit.is_some_and(|limit| limit.byte_per_s() < 1000) {
            return wrong(at, format!("disk.{key}: less than 1kB/s; leave it out for no limit"));
        }
    }
    match disk.model.as_ref().map(|model| model.check()) {
        Some(Err(problem)) => wrong(at, problem.to_string()),
        _ => Ok(()),
    }
}

fn check_pool(pool: ByteSize, disk: &Disk) -> Result<(), String> {
    let segment = ByteSize::from_bytes(pool::SEGMENT_BYTES);
    if pool.bytes() < segment.bytes() || pool.bytes() > disk.size.bytes() / 2 {
        return Err(format!("disk.pool: {pool} is not within {segment} (a segment) and half of the disk"));
    }
    if disk.file_system == FileSystem::Btrfs {
        return Err(
            "disk.pool: btrfs writes elsewhere what a pool writes in place; use ext4, ext3 or xfs".to_owned()
        );
    }
    Ok(())
}

fn check_mount(mount: &Spanned<Mount>) -> Checked<()> {
    let (at, mount) = (mount.span().start, mount.get_ref());
    if !mount.command.contains("KAGIRI_LAB_MOUNT") {
        let problem = "mount.command: it has no $KAGIRI_LAB_MOUNT, the folder to mount at; write for example \
                       \"s3fs BUCKET $KAGIRI_LAB_MOUNT -f\"";
        return wrong(at, problem);
    }
    if !(Span::from_s(1)..=Span::from_s(50)).contains(&mount.within) {
        return wrong(at, format!("mount.within: {} is not within 1s..50s", mount.within));
    }
    Ok(())
}

fn variable((name, value): (Spanned<String>, String)) -> Checked<(String, String)> {
    let text = name.get_ref();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if text.is_empty() || !is_plain || text.as_bytes()[0].is_ascii_digit() {
        let problem = format!("environment: '{text}' is no variable; use letters, digits and '_'");
        return wrong(name.span().start, problem);
    }
    if text.starts_with("KAGIRI_LAB") || value.contains('\0') {
        return wrong(name.span().start, format!("environment: {text} cannot be set to this value here"));
    }
    Ok((name.into_inner(), value))
}

/// `tcp_rmem` means `ipv4.tcp_rmem`; other settings are paths below `net`, with dots.
fn setting_path(name: &Spanned<String>) -> Checked<String> {
    let text = name.get_ref().strip_prefix("net.").unwrap_or(name.get_ref());
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    if !text.split('.').all(word) {
        let problem = format!(
            "settings: '{text}' is not a kernel setting; write for example tcp_rmem or net.ipv4.tcp_rmem"
        );
        return wrong(name.span().start, problem);
    }
    Ok(if text.contains('.') { text.to_owned() } else { format!("ipv4.{text}") })
}

fn links_of(link: &Spanned<LinkFile>, hosts: &[Host], switches: &[String]) -> Checked<Vec<Link>> {
    let (at, file) = (link.span().start, link.get_ref());
    let [first, second] = match (&file.between, &file.from, &file.to) {
        (Some(ends), None, None) => match ends.get_ref().as_slice() {
            [first, second] => [first.clone(), second.clone()],
            ends => {
                let ends = ends.len();
                let problem = format!(
                    "link: between has {ends} name{}, and a link has two ends, as in between = [\"A\", \
                     \"B\"]",
                    if ends == 1 { "" } else { "s" }
                );
                return wrong(at, problem);
            }
        },
        (None, Some(from), Some(to)) => [from.clone(), to.clone()],
        _ => return wrong(at, "link: give either between = [\"A\", \"B\"], or from and to"),
    };
    // Patterns match hosts only: `*` should not connect a switch to itself.
    let pick = |pattern: &str| -> Checked<Vec<String>> {
        let switches = switches.iter().filter(|_| !pattern.contains('*'));
        let names = hosts.iter().map(|host| &host.name).chain(switches);
        let found: Vec<String> = names.clone().filter(|name| matches(pattern, name)).cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let kinds = if pattern.contains('*') { "no host" } else { "no host and no switch" };
        let there = first_of(names, NAMED_MAX);
        wrong(at, format!("link: {kinds} has the name '{pattern}'; there are {there}"))
    };
    if first.contains('*') && second.contains('*') {
        return wrong(at, "link: one end may be a pattern, the other is a name");
    }
    let (rate_up, rate_down) = (rate(&file.rate_up)?, rate(&file.rate_down)?);
    let both = rate(&file.rate)?;
    if both.is_some() && rate_up.is_some() && rate_down.is_some() {
        return wrong(at, "link: rate has no effect beside rate_up and rate_down; leave it out");
    }
    let like = Link {
        first: String::new(),
        second: String::new(),
        rate_up: rate_up.or(both),
        rate_down: rate_down.or(both),
        buffer: buffer(&file.buffer)?,
        queue: file.queue.as_ref().map(|queue| *queue.get_ref()).unwrap_or_default(),
        delay: delay(&file.delay)?,
        loss: loss(&file.loss)?,
        steps: steps(file)?,
    };
    if like.rate_up.is_none() && like.rate_down.is_none() {
        if let Some(buffer) = &file.buffer {
            return wrong(buffer.span().start, "buffer: nothing waits on a link without a rate; give a rate");
        }
        if let Some(queue) = &file.queue {
            return wrong(queue.span().start, "queue: nothing waits on a link without a rate; give a rate");
        }
    }
    let mut links = Vec::new();
    for first in &pick(&first)? {
        for second in pick(&second)? {
            if *first == second {
                return wrong(at, format!("link: '{second}' cannot be linked to itself"));
            }
            links.push(Link { first: first.clone(), second, ..like.clone() });
        }
    }
    Ok(links)
}

/// From 8 kbit/s (a packet in 1.5 s) to more than any machine reaches.
fn rate(rate: &Option<Spanned<BitRate>>) -> Checked<Option<BitRate>> {
    let Some(rate) = rate else { return Ok(None) };
    match is_possible(*rate.get_ref()) {
        true => Ok(Some(*rate.get_ref())),
        false => wrong(rate.span().start, format!("rate: {} is not within {RATE_RANGE}", rate.get_ref())),
    }
}

fn steps(file: &LinkFile) -> Checked<Vec<Step>> {
    let at = file.steps.as_ref().map(|steps| steps.span().start);
    check_steps(file).map_err(|problem| Wrong { problem: format!("steps: {problem}"), at })
}

/// At least one full packet.
fn buffer(buffer: &Option<Spanned<ByteSize>>) -> Checked<Option<ByteSize>> {
    let Some(buffer) = buffer else { return Ok(None) };
    match buffer.get_ref().bytes() {
        2_000..=1_000_000_000 => Ok(Some(*buffer.get_ref())),
        _ => wrong(buffer.span().start, format!("buffer: {} is not within 2kB..1GB", buffer.get_ref())),
    }
}

fn delay(delay: &Option<Spanned<Span>>) -> Checked<Span> {
    let Some(delay) = delay else { return Ok(Span::default()) };
    match delay.get_ref() {
        span if *span <= Span::from_s(10) => Ok(*span),
        span => wrong(delay.span().start, format!("delay: {span} is more than 10s")),
    }
}

fn loss(loss: &Option<Spanned<Share>>) -> Checked<f64> {
    let Some(loss) = loss else { return Ok(0.0) };
    match loss.get_ref().0 {
        // A loss of 1 would lose everything; the user means 1 %.
        share if (0.0..1.0).contains(&share) => Ok(share),
        share => {
            let problem = format!("loss: {share} is not a share from 0 to below 1: 0.01 or \"1%\" is 1 %");
            wrong(loss.span().start, problem)
        }
    }
}
