//! Lab files: their meaning, and the errors of wrong ones.

use lab::file::{Lab, Queue};
use lab::layout::Layout;
use proptest::prelude::*;

const SMALL: &str = "name = 'small'\n[host.a]\n[host.b]\n";

#[test]
fn groups_and_patterns_are_resolved() {
    let lab = Lab::read(
        "name = 'robots'\nseed = 7\nagents = false\n\
         [host.robot]\ncount = 3\ncpu_quota_percent = 50\nrun = ['sleep 1']\naddress = '10.77.0.20'\n\
         settings = { tcp_rmem = '4096 131072 6291456', 'net.core.somaxconn' = 128 }\n\
         [host.server.disk]\nsize = '64MiB'\nread_limit = '110Mbit/s'\nmodel = 'hdd-7200'\n\
         [switch.floor]\n\
         [[link]]\nbetween = ['robot-*', 'floor']\n\
         [[link]]\nfrom = 'server'\nto = 'floor'\nrate = '50Mbit/s'\nrate_down = '10Mbit/s'\nbuffer = \
         '750kB'\n\
         queue = 'htb'\ndelay = '5ms'\nloss = 0.01\n",
    )
    .unwrap();
    let names: Vec<_> = lab.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["robot-1", "robot-2", "robot-3", "server"]);
    assert_eq!(lab.hosts[2].address.unwrap().to_string(), "10.77.0.22");
    let settings: Vec<_> = lab.hosts[0].settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(settings, ["core.somaxconn=128", "ipv4.tcp_rmem=4096 131072 6291456"]);
    assert!(lab.hosts[3].disk.as_ref().unwrap().model.is_some());
    assert_eq!(lab.links.len(), 4);
    let (free, narrow) = (&lab.links[0], &lab.links[3]);
    assert!(free.rate_up.is_none() && free.rate_down.is_none() && !free.has_line() && narrow.has_line());
    let rates = [narrow.rate_up, narrow.rate_down].map(|rate| rate.unwrap().bit_per_s());
    assert_eq!((rates, narrow.queue), ([50_000_000, 10_000_000], Queue::Htb));
    assert_eq!(narrow.buffer_bytes(narrow.rate_up.unwrap()), 750_000);
    assert!(!lab.agents && lab.seed == 7);
}

#[test]
fn default_buffer_holds_ten_milliseconds() {
    let lab = Lab::read(&format!("{SMALL}[[link]]\nbetween = ['a', 'b']\nrate = '1Gbit/s'\n")).unwrap();
    let buffer = |rate: &str| lab.links[0].buffer_bytes(rate.parse().unwrap());
    assert_eq!((buffer("1Gbit/s"), buffer("10Mbit/s")), (1_250_000, 65_536));
}

#[test]
fn loss_is_a_share_or_percent() {
    for (text, share) in [("0.01", 0.01), ("0", 0.0), ("'1%'", 0.01), ("' 2.5 %'", 0.025), ("'0.2'", 0.2)] {
        let lab = Lab::read(&format!("{SMALL}[[link]]\nbetween = ['a', 'b']\nloss = {text}\n")).unwrap();
        assert!((lab.links[0].loss - share).abs() < 1e-12, "{text}");
    }
}

/// Each text is refused, with these words.
fn refused(cases: &[(String, &str)]) {
    for (text, part) in cases {
        let message = Lab::read(text).expect_err(text).to_string();
        assert!(message.contains(part), "{text}\n-> {message}");
    }
}

#[test]
fn invalid_file_is_rejected_with_line() {
    refused(&[
        ("name = ".to_owned(), "line 1:"),
        ("[host.a]\n".to_owned(), "missing field `name`"),
        ("name = 'x'\n".to_owned(), "at least one host"),
        ("name = 'x y'\n[host.a]\n".to_owned(), "line 1: name: 'x y'"),
        ("name = '../x'\n[host.a]\n".to_owned(), "letters, digits and '-'"),
        ("name = 'x'\n\n[host.a]\nquota = 3\n".to_owned(), "line 4: unknown field `quota`"),
        ("name = 'x'\n[host.switches]\n".to_owned(), "line 2: host: 'switches' is the lab's own"),
        ("name = 'x'\n[host.a]\ncpu_quota_percent = 0.0\n".to_owned(), "line 3: cpu_quota_percent: 0"),
        ("name = 'x'\n[host.a]\ncount = 0\n".to_owned(), "line 3: count: 0 is not within 1..1000"),
        ("name = 'x'\n[host.a]\ncount = 900\n[host.b]\ncount = 101\n".to_owned(), "at most 1000 hosts"),
        (
            "name = 'x'\n[host.a]\naddress = '192.0.2.1'\n".to_owned(),
            "line 3: address: 192.0.2.1 is not within",
        ),
        ("name = 'x'\n[host.a]\nsettings = { '../x' = 1 }\n".to_owned(), "line 3: settings: '../x' is no"),
        ("name = 'x'\n[host.a]\nsettings = { tcp_rmem = [1] }\n".to_owned(), "a text or a whole number"),
        ("name = 'x'\nsubnet = '10.0.0.0/30'\n[host.a]\n".to_owned(), "line 2: subnet: '10.0.0.0/30'"),
        ("name = 'x'\nsubnet = '0.0.0.0/8'\n[host.a]\n".to_owned(), "line 2: subnet: '0.0.0.0/8' cannot"),
        ("name = 'x'\nsubnet = '224.0.0.0/8'\n[host.a]\n".to_owned(), "line 2: subnet: '224.0.0.0/8' cannot"),
        ("name = 'x'\nrouter = 'z'\n[host.a]\n".to_owned(), "line 2: router: there is no host 'z'"),
        (
            format!("{SMALL}[host.a-1]\n[host.c]\n[switch.a]\n"),
            "line 6: 'a' is a host as well; names must be unique",
        ),
        ("name = 'x'\n[host.a]\ncount = 2\n[host.a-2]\n".to_owned(), "two hosts have the name 'a-2'"),
        (format!("{SMALL}[switch.port1]\n"), "the lab itself uses the name"),
        (format!("{SMALL}[switch.a-name-that-is-long]\n"), "at most 15 letters"),
        (format!("{SMALL}[switch.s]\nports = 8\n"), "unknown field `ports`"),
    ]);
}

#[test]
fn invalid_link_or_disk_is_rejected_with_line() {
    let link = |more: &str| format!("{SMALL}[[link]]\nbetween = ['a', 'b']\n{more}\n");
    refused(&[
        (format!("{SMALL}[[link]]\nfrom = 'a'\n"), "line 4: link: give either between"),
        (
            format!("{SMALL}[[link]]\nbetween = ['a', 'z']\n"),
            "line 4: link: no host and no switch has the name 'z'; there are a, b",
        ),
        (
            format!("{SMALL}[switch.s]\n[[link]]\nbetween = ['c-*', 's']\n"),
            "line 5: link: no host has the name 'c-*'; there are a, b",
        ),
        (
            format!("{SMALL}[[link]]\nbetween = ['a']\n"),
            "line 4: link: between has 1 name, and a link has two ends",
        ),
        ("link = ['a']\nname = 'x'\n[host.a]\n".to_owned(), "a link is a table: [[link]]"),
        (format!("{SMALL}[[link]]\nbetween = ['a', 'a']\n"), "linked to itself"),
        (format!("{SMALL}[[link]]\nbetween = ['*', '*']\n"), "one end may be a pattern"),
        (link("rate = '25'"), "line 6: '25' is not a bit rate: the unit is missing"),
        (link("rate = '1bit/s'"), "line 6: rate: 1bit/s is not within"),
        (
            link("rate = '1Mbit/s'\nrate_up = '1Mbit/s'\nrate_down = '1Mbit/s'"),
            "line 4: link: rate has no effect beside rate_up and rate_down; leave it out",
        ),
        (link("buffer = '64KiB'"), "line 6: buffer: nothing waits on a link without a rate"),
        (link("rate = '1Mbit/s'\nbuffer = '100B'"), "line 7: buffer: 100B is not within 2kB..1GB"),
        (link("rate = '1Mbit/s'\nqueue = 'fq'"), "unknown variant `fq`, expected `tbf` or `htb`"),
        (link("delay = '1min'"), "line 6: delay: 60s is more"),
        (
            link("rate = 100"),
            "line 6: 100 is not a bit rate: the unit is missing; write for example \"100Mbit/s\"",
        ),
        (link("delay = 5"), "line 6: 5 is not a time: the unit is missing; write for example \"5ms\""),
        (link("loss = 1.5"), "line 6: loss: 1.5 is not a share"),
        (link("loss = 1"), "line 6: loss: 1 is not a share from 0 to below 1: 0.01 or \"1%\" is 1 %"),
        (link("loss = '100%'"), "line 6: loss: 1 is not a share"),
        (link("loss = 'little'"), "line 6: 'little' is not a share; write 0.01 or \"1%\""),
        (link("loss = nan"), "line 6: loss: NaN"),
        (format!("{SMALL}[host.c.disk]\nsize = '1KiB'\n"), "disk.size: 1KiB is not within"),
        (
            format!("{SMALL}[host.c.disk]\nsize = '100MiB'\nfile_system = 'xfs'\n"),
            "line 4: disk.size: 100MiB is too small for xfs, which needs 300MiB",
        ),
        (format!("{SMALL}[host.c.disk]\nsize = '100MiB'\nfile_system = 'btrfs'\n"), "which needs 109MiB"),
        (format!("{SMALL}[host.c.disk]\nsize = '1GiB'\nfile_system = 'fat'\n"), "unknown variant `fat`"),
        (
            format!("{SMALL}[host.c.disk]\nsize = '1GiB'\nmodel = 'floppy'\n"),
            "there is no disk model `floppy`",
        ),
    ]);
}

#[test]
fn ready_labs_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans/labs");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let lab = Lab::read(&std::fs::read_to_string(&path).unwrap());
        let lab = lab.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Layout::of(&lab).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        names.push(lab.name);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(count >= 6 && names.len() == count, "{names:?}");
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(
        text in "(name|=|'a'|\n|\\[|\\]|host|switch|link|between|rate|\\.|a|count|9|\
                 '1Mbit/s'|é|#|\\PC){0,40}"
    ) {
        let _ = Lab::read(&text);
    }

    /// Each host gets an address of its own in one of the lab's networks.
    #[test]
    fn addresses_are_distinct_and_in_the_subnet(
        count in 1u32..400,
        switches in 1usize..5,
        prefix in 16u8..=22,
    ) {
        let mut text = format!("name = 'x'\nsubnet = '10.50.0.0/{prefix}'\n[host.h]\ncount = {count}\n");
        for switch in 0..switches {
            text += &format!("[switch.s{switch}]\n[[link]]\nbetween = ['h-*', 's{switch}']\n");
        }
        let lab = Lab::read(&text).unwrap();
        let Ok(layout) = Layout::of(&lab) else {
            // Only for lack of addresses, of which a /16 has enough.
            prop_assert!(prefix > 16);
            return Ok(());
        };
        let ways: Vec<_> = layout.host_networks.iter().flat_map(|place| &place.interfaces).collect();
        prop_assert_eq!(ways.len(), count as usize * switches);
        let mut addresses: Vec<_> = ways.iter().map(|way| way.address).collect();
        prop_assert!(ways.iter().all(|way| way.subnet.contains(way.address)));
        prop_assert!(ways.iter().all(|way| lab.subnet.contains(way.address)));
        addresses.sort_unstable();
        addresses.dedup();
        prop_assert_eq!(addresses.len(), ways.len());
    }
}

#[test]
fn mounts_and_variables_are_read_and_checked() {
    let mount = |keys: &str| {
        format!("name = 'x'\n[host.a]\nenvironment = {{ KEY_1 = 'secret' }}\n[host.a.mount]\n{keys}\n")
    };
    let lab = Lab::read(&mount("command = 's3fs b $KAGIRI_LAB_MOUNT -f'")).unwrap();
    assert_eq!(lab.hosts[0].environment["KEY_1"], "secret");
    let mounted = lab.hosts[0].mount.as_ref().unwrap();
    assert_eq!((mounted.command.as_str(), mounted.within.s()), ("s3fs b $KAGIRI_LAB_MOUNT -f", 20.0));
    let variable = |name: &str| format!("name = 'x'\n[host.a]\nenvironment = {{ '{name}' = 'v' }}\n");
    refused(&[
        (mount("command = 's3fs b /mnt -f'"), "it has no $KAGIRI_LAB_MOUNT"),
        (mount("command = '$KAGIRI_LAB_MOUNT'\nwithin = '2min'"), "mount.within: 2min is not within 1s..50s"),
        (mount("command = '$KAGIRI_LAB_MOUNT'\npoint = 'x'"), "point"),
        (variable("A=B"), "'A=B' is no variable"),
        (variable("1A"), "'1A' is no variable"),
        (variable("KAGIRI_LAB_MOUNT"), "cannot be set"),
    ]);
}
