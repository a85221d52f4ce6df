//! Calibration on the real machine: what it says is checked against what the kernel counts, not against a
//! speed.

use base::outcome::Resource;
use observe::calibrate;

#[test]
fn ceilings_name_their_source_and_leave_nothing() {
    let here = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
    let mut said = Vec::new();
    let ceilings = calibrate::all(folder.path(), &mut |line| said.push(line.to_owned()), &|| false);
    let rounds = said.iter().filter(|line| line.starts_with("loopback: sending over ")).count();
    assert_eq!(rounds, 6, "1 to 64 connections, and the best of them twice more: {said:?}");
    let explained =
        |resource: Resource| said.iter().any(|line| line.starts_with(&format!("{resource}: not calibrated")));
    for resource in [Resource::Cpu, Resource::Disk, Resource::Network] {
        match ceilings.get(&resource) {
            Some(ceiling) => {
                assert!(ceiling.value > 0.0 && ceiling.value.is_finite(), "{resource} {ceiling:?}");
                let how = match resource {
                    Resource::Cpu => "core",
                    Resource::Disk => "median of 3",
                    _ => "the most of",
                };
                assert!(ceiling.source.contains(how), "{ceiling:?}");
            }
            None => assert!(explained(resource), "{resource}: {said:?}"),
        }
    }
    assert!(said.iter().any(|line| line.starts_with("memory: ")), "{said:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    for line in said {
        println!("{line}");
    }
    println!("{ceilings:#?}");
}

#[test]
fn stop_ends_calibration_without_disk_and_network() {
    let folder = tempfile::tempdir().unwrap();
    let ceilings = calibrate::all(folder.path(), &mut |_| {}, &|| true);
    assert!(ceilings.keys().all(|resource| *resource == Resource::Cpu), "{ceilings:?}");
}
