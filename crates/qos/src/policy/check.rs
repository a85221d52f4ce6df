//! Checks the values of a policy.

use std::net::IpAddr;

use base::units::{BitRate, ByteSize, Span};
use ipnet::IpNet;
use sys::net::CongestionControl;
use toml::Spanned;

use super::matching::{Match, Overlap, Ports, User};
use super::raw::{BottleneckFile, ClassFile, MatchFile, NumberOrText, PolicyFile};
use super::{Bottleneck, CLASSES_MAX, Capacity, Class, Policy};
use crate::SOCKET_RATE_MIN;
use crate::allocate::USABLE;

/// Longest name of an interface: `IFNAMSIZ` without its terminator (netdevice(7)).
const INTERFACE_BYTES_MAX: usize = 15;
/// Longest name that the kernel keeps of a process: `TASK_COMM_LEN` without its terminator.
const PROCESS_BYTES_MAX: usize = 15;
const NAME_CHARS_MAX: usize = 64;
const ENDPOINT_BYTES_MAX: usize = 300;
const TEXT_BYTES_MAX: usize = 4096;
const PRIORITY_MAX: i64 = 100;
const CLIENTS_MAX: i64 = 1_000_000;
const WEIGHT_MAX: f64 = 1e6;
/// Beyond every interface of today by an order of magnitude: a unit is wrong.
const CAPACITY_MAX: BitRate = BitRate::from_bit_per_s(10_000_000_000_000);
/// The longest target and the largest message.
pub const TARGET_MAX: Span = Span::from_s(86_400);
pub const SIZE_MAX: ByteSize = ByteSize::from_bytes(1_000_000_000_000);

pub(super) struct Wrong {
    pub(super) key: String,
    pub(super) problem: String,
    pub(super) at: Option<usize>,
}

type Checked<T> = Result<T, Wrong>;

fn wrong<T>(key: &str, at: usize, problem: impl Into<String>) -> Checked<T> {
    Err(Wrong { key: key.to_owned(), problem: problem.into(), at: Some(at) })
}

pub(super) fn check(file: PolicyFile) -> Checked<Policy> {
    let bottleneck = bottleneck(file.bottleneck)?;
    if file.class.is_empty() {
        let problem = "a policy has at least one class; add [[class]] with name, match and priority";
        return Err(Wrong { key: "class".into(), problem: problem.into(), at: None });
    }
    if file.class.len() > CLASSES_MAX {
        let problem =
            format!("{} classes are more than {CLASSES_MAX}; make similar ones one class", file.class.len());
        return wrong("class", file.class[CLASSES_MAX].span().start, problem);
    }
    let mut classes: Vec<(Class, usize)> = Vec::new();
    for read in file.class {
        let at = read.span().start;
        let class = class(read.into_inner(), &classes)?;
        check_floors(&classes, &class, &bottleneck, at)?;
        classes.push((class, at));
    }
    Ok(Policy { bottleneck, classes: classes.into_iter().map(|(class, _)| class).collect() })
}

fn bottleneck(file: BottleneckFile) -> Checked<Bottleneck> {
    let interface = file.interface.get_ref();
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | ':');
    let is_name = (1..=INTERFACE_BYTES_MAX).contains(&interface.len()) && interface.chars().all(is_plain);
    if !is_name || matches!(interface.as_str(), "." | "..") {
        let problem = format!(
            "'{}' cannot be the name of an interface; write one that 'ip link' lists",
            interface.escape_debug()
        );
        return wrong("bottleneck.interface", file.interface.span().start, problem);
    }
    if let Capacity::Given(rate) = file.capacity.get_ref() {
        let least = BitRate::from_bit_per_s(SOCKET_RATE_MIN as u64);
        if *rate < least || *rate > CAPACITY_MAX {
            let problem = format!(
                "{rate} is not within {least} to {CAPACITY_MAX}; write the rate of the slowest link, such as \
                 \"50Mbit/s\", or \"estimate\""
            );
            return wrong("bottleneck.capacity", file.capacity.span().start, problem);
        }
    }
    Ok(Bottleneck {
        coordinator: file.coordinator.as_ref().map(coordinator).transpose()?,
        interface: file.interface.into_inner(),
        capacity: file.capacity.into_inner(),
    })
}

/// The program that connects knows the forms of an endpoint; here, it is a word.
fn coordinator(endpoint: &Spanned<String>) -> Checked<String> {
    let text = endpoint.get_ref();
    if text.is_empty()
        || text.len() > ENDPOINT_BYTES_MAX
        || text.chars().any(|c| c.is_whitespace() || c.is_control())
    {
        let problem = "it is no endpoint; write where 'kagiri qos coordinate' listens, such as \
                       \"tls/desk.example:7448\"";
        return wrong("bottleneck.coordinator", endpoint.span().start, problem);
    }
    Ok(text.clone())
}

/// Refuses floors that cannot be reserved all at once.
fn check_floors(before: &[(Class, usize)], class: &Class, bottleneck: &Bottleneck, at: usize) -> Checked<()> {
    let Capacity::Given(capacity) = bottleneck.capacity else { return Ok(()) };
    let floors = before.iter().map(|(class, _)| class.floor.bit_per_s() as f64).sum::<f64>();
    let floors = floors + class.floor.bit_per_s() as f64;
    let usable = USABLE * capacity.bit_per_s() as f64;
    if class.floor.bit_per_s() == 0 || floors <= usable {
        return Ok(());
    }
    let problem = format!(
        "the floors up to class '{}' add up to {}, but only {} (97 % of the capacity of {capacity}) can be \
         allocated; lower a floor",
        class.name,
        BitRate::from_bit_per_s(floors as u64),
        BitRate::from_bit_per_s(usable as u64),
    );
    wrong("class.floor", at, problem)
}

/// Refuses a class whose sockets an earlier one takes, or may take.
fn check_apart(name: &str, matches: &Match, at: usize, before: &[(Class, usize)]) -> Checked<()> {
    for (other, _) in before {
        if other.matches == *matches {
            let problem = format!(
                "class '{name}' has the same conditions as class '{}'; remove one of them",
                other.name
            );
            return wrong("class.match", at, problem);
        }
        if other.matches.is_everything() {
            let problem = format!(
                "class '{name}' gets no socket, because class '{}' before it matches all; move that to the \
                 end",
                other.name
            );
            return wrong("class.match", at, problem);
        }
        if !matches.is_everything() && other.matches.overlap(matches) == Overlap::Overlapping {
            let problem = format!(
                "a socket can match both '{name}' and '{}'; give both a condition that separates them, such \
                 as command or peer",
                other.name
            );
            return wrong("class.match", at, problem);
        }
    }
    Ok(())
}

fn class(file: ClassFile, before: &[(Class, usize)]) -> Checked<Class> {
    let name = name(&file.name, before)?;
    let matches = matches(&file.matches)?;
    check_apart(&name, &matches, file.matches.span().start, before)?;
    let priority = whole("class.priority", &file.priority, PRIORITY_MAX, "1 is the most urgent")?;
    let target = file.target.as_ref().map(|target| within_time("class.target", target)).transpose()?;
    let interval = file.interval.as_ref().map(|every| within_time("class.interval", every)).transpose()?;
    let size = file.size.as_ref().map(size).transpose()?;
    let clients = file.clients.as_ref().map_or(Ok(1), |clients| {
        whole("class.clients", clients, CLIENTS_MAX, "messages that may be on their way at the same time")
    })?;
    if target.is_none() {
        let useless = [
            ("class.size", file.size.as_ref().map(Spanned::span)),
            ("class.interval", file.interval.as_ref().map(Spanned::span)),
            ("class.clients", file.clients.as_ref().map(Spanned::span)),
            ("class.overhead", file.overhead.as_ref().map(Spanned::span)),
        ];
        if let Some((key, span)) = useless.into_iter().find_map(|(key, span)| Some((key, span?))) {
            let problem =
                "it has an effect only in a class with a target; add target = \"500ms\" or remove it";
            return wrong(key, span.start, problem);
        }
    }
    let weight = file.weight.as_ref().map_or(1.0, |weight| *weight.get_ref());
    if !(weight > 0.0 && (1.0 / WEIGHT_MAX..=WEIGHT_MAX).contains(&weight)) {
        let at = file.weight.map_or(0, |weight| weight.span().start);
        return wrong(
            "class.weight",
            at,
            format!("{weight} is not within 1e-6 to 1e6; the usual weight is 1"),
        );
    }
    let floor = file.floor.as_ref().map_or(BitRate::default(), |floor| *floor.get_ref());
    if let Some(ceiling) = &file.ceiling {
        check_ceiling(ceiling, floor)?;
    }
    Ok(Class {
        name,
        matches,
        priority: u8::try_from(priority).unwrap_or(u8::MAX),
        target,
        size,
        interval,
        clients: u32::try_from(clients).unwrap_or(u32::MAX),
        overhead: file.overhead.map_or(Span::default(), Spanned::into_inner),
        weight,
        floor,
        ceiling: file.ceiling.map(Spanned::into_inner),
        congestion_control: file.congestion_control.as_ref().map(congestion_control).transpose()?,
        join: file.join,
    })
}

fn congestion_control(name: &Spanned<String>) -> Checked<CongestionControl> {
    let text = name.get_ref();
    match CongestionControl::from_name(text) {
        Some(control) => Ok(control),
        None => {
            let problem = format!(
                "'{}' is no congestion control; write one that 'sysctl \
                 net.ipv4.tcp_available_congestion_control' lists, such as \"cubic\"",
                text.escape_debug()
            );
            wrong("class.congestion_control", name.span().start, problem)
        }
    }
}

fn check_ceiling(ceiling: &Spanned<BitRate>, floor: BitRate) -> Checked<()> {
    let (rate, at) = (*ceiling.get_ref(), ceiling.span().start);
    if (rate.bit_per_s() as f64) < SOCKET_RATE_MIN {
        let problem =
            format!("{rate} is below 64kbit/s, the lowest rate that a socket can be held at; raise it");
        return wrong("class.ceiling", at, problem);
    }
    if floor > rate {
        let problem = format!("the floor of {floor} is above the ceiling of {rate}; lower the floor");
        return wrong("class.ceiling", at, problem);
    }
    Ok(())
}

fn name(name: &Spanned<String>, before: &[(Class, usize)]) -> Checked<String> {
    let (text, at) = (name.get_ref(), name.span().start);
    let is_visible = |c: char| !c.is_control() && !c.is_whitespace();
    if text.is_empty() || text.chars().count() > NAME_CHARS_MAX || !text.chars().all(is_visible) {
        let problem = format!(
            "'{}' is not a name; write 1 to {NAME_CHARS_MAX} characters without blanks",
            text.chars().take(NAME_CHARS_MAX).collect::<String>().escape_debug()
        );
        return wrong("class.name", at, problem);
    }
    if before.iter().any(|(class, _)| class.name == *text) {
        return wrong("class.name", at, format!("two classes have the name '{text}'; rename one of them"));
    }
    Ok(text.clone())
}

fn whole(key: &str, value: &Spanned<i64>, most: i64, meaning: &str) -> Checked<i64> {
    match *value.get_ref() {
        value if (1..=most).contains(&value) => Ok(value),
        other => wrong(
            key,
            value.span().start,
            format!("{other} is not within 1 to {most}; write a whole number ({meaning})"),
        ),
    }
}

fn within_time(key: &str, time: &Spanned<Span>) -> Checked<Span> {
    match *time.get_ref() {
        span if span > Span::default() && span <= TARGET_MAX => Ok(span),
        other => {
            let problem = format!("{other} is not above 0 and at most 24h; write for example \"500ms\"");
            wrong(key, time.span().start, problem)
        }
    }
}

fn size(size: &Spanned<ByteSize>) -> Checked<ByteSize> {
    match *size.get_ref() {
        bytes if bytes > ByteSize::default() && bytes <= SIZE_MAX => Ok(bytes),
        other => {
            let problem = format!("{other} is not within 1B to 1TB; write the size of one message");
            wrong("class.size", size.span().start, problem)
        }
    }
}

fn matches(read: &Spanned<MatchFile>) -> Checked<Match> {
    let file = read.get_ref();
    let found = Match {
        process: file.process.as_ref().map(process).transpose()?,
        command: file.command.as_ref().map(|text| plain_text("class.match.command", text)).transpose()?,
        cgroup: file.cgroup.as_ref().map(cgroup).transpose()?,
        user: file.user.as_ref().map(user).transpose()?,
        port: file.port.as_ref().map(ports).transpose()?,
        peer: file.peer.as_ref().map(peer).transpose()?,
    };
    if found.is_empty() {
        let problem = "a match without a condition is every socket; give at least one of process, command, \
                       cgroup, user, port, peer";
        return wrong("class.match", read.span().start, problem);
    }
    Ok(found)
}

fn plain_text(key: &str, text: &Spanned<String>) -> Checked<String> {
    let value = text.get_ref();
    if value.is_empty() || value.len() > TEXT_BYTES_MAX || value.contains(char::is_control) {
        let problem = format!("it is not 1 to {TEXT_BYTES_MAX} bytes without control characters; shorten it");
        return wrong(key, text.span().start, problem);
    }
    Ok(value.clone())
}

fn process(name: &Spanned<String>) -> Checked<String> {
    let key = "class.match.process";
    let text = plain_text(key, name)?;
    if text.len() > PROCESS_BYTES_MAX {
        let problem = format!(
            "'{text}' is longer than {PROCESS_BYTES_MAX} bytes, the most that the kernel keeps of a \
             process's name; write what 'ps -o comm' shows, or match command instead"
        );
        return wrong(key, name.span().start, problem);
    }
    Ok(text)
}

fn cgroup(path: &Spanned<String>) -> Checked<String> {
    let key = "class.match.cgroup";
    let text = plain_text(key, path)?;
    if !text.starts_with('/') || text.split('/').any(|part| part == "..") {
        let problem = format!(
            "'{text}' is not the path of a control group; write it as /proc/PID/cgroup does, such as \
             \"/system.slice/rsync.service\""
        );
        return wrong(key, path.span().start, problem);
    }
    Ok(text)
}

fn user(user: &Spanned<NumberOrText>) -> Checked<User> {
    let (key, at) = ("class.match.user", user.span().start);
    match user.get_ref() {
        NumberOrText::Number(id) => u32::try_from(*id).map(User::Id).or_else(|_| {
            wrong(key, at, format!("{id} is no user id; write one of 0 to 4294967295, or a name"))
        }),
        NumberOrText::Text(name) if name.is_empty() || name.contains([':', '/', '\n', '\0']) => {
            wrong(key, at, format!("'{}' is no user name; write a name or an id", name.escape_debug()))
        }
        NumberOrText::Text(name) => Ok(User::Name(name.clone())),
    }
}

fn ports(ports: &Spanned<NumberOrText>) -> Checked<Ports> {
    let text = ports.get_ref().to_string();
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
        (Ok(first), Ok(last)) if first >= 1 && first <= last => Ok(Ports { first, last }),
        _ => {
            let problem = format!(
                "'{}' is no port; write one of 1 to 65535, or a range such as \"5000-5010\"",
                text.escape_debug()
            );
            wrong("class.match.port", ports.span().start, problem)
        }
    }
}

fn peer(peer: &Spanned<String>) -> Checked<IpNet> {
    let text = peer.get_ref();
    let network = text.parse::<IpNet>().map(|network| network.trunc());
    network.or_else(|_| text.parse::<IpAddr>().map(|address| IpNet::from(address.to_canonical()))).or_else(
        |_| {
            let problem = format!(
                "'{}' is no address; write one such as \"10.0.0.2\", or a network such as \"10.0.0.0/24\"",
                text.escape_debug()
            );
            wrong("class.match.peer", peer.span().start, problem)
        },
    )
}
