//! Lab files; a lab that is accepted has a place for everything, or says why not.
#![no_main]

use std::collections::BTreeSet;

use lab::file::Lab;
use lab::layout::Layout;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let lab = match Lab::read(&text) {
        Ok(lab) => lab,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.line.is_none_or(|line| line <= text.lines().count() + 1), "{error}");
            return;
        }
    };
    let Ok(layout) = Layout::of(&lab) else { return };
    assert_eq!(layout.host_networks.len(), lab.hosts.len());
    assert_eq!(layout.wires.len(), lab.links.len());
    let ways: Vec<_> = layout.host_networks.iter().flat_map(|network| &network.interfaces).collect();
    let addresses: BTreeSet<_> = ways.iter().map(|way| way.address).collect();
    assert_eq!(addresses.len(), ways.len(), "every interface has an address of its own");
    assert!(ways.iter().all(|way| lab.subnet.contains(way.address) && way.subnet.contains(way.address)));
    let ends: Vec<_> = layout.wires.iter().flat_map(|wire| &wire.ends).collect();
    let devices: BTreeSet<_> = ends.iter().map(|end| (&end.namespace, &end.device)).collect();
    assert_eq!(devices.len(), ends.len(), "every end is an interface of its own");
});
