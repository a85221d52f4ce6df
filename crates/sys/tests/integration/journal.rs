//! The undo journal on files and processes that need no root.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::LONG;
use sys::Error;
use sys::journal::{Journal, Outcome, Undo};

fn file(path: PathBuf) -> Undo {
    Undo::RemoveFile { path }
}

fn start_ticks(pid: i32) -> u64 {
    sys::proc::start_ticks(Path::new("/"), pid).unwrap()
}

/// A journal as a dead process leaves it: the header of one that has ended, and these lines.
fn leave(folder: &Path, name: &str, lines: &[String]) -> PathBuf {
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let header =
        format!(r#"{{"kagiri_journal":1,"pid":{},"start_ticks":1,"boot_id":"{}"}}"#, dead.id(), boot.trim());
    let path = folder.join(name);
    std::fs::write(&path, format!("{header}\n{}\n", lines.join("\n"))).unwrap();
    path
}

fn line(id: u64, undo: &Undo) -> String {
    serde_json::json!({ "id": id, "undo": undo }).to_string()
}

fn private_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
    folder
}

#[test]
fn entries_are_synced_first_and_undone_newest_first() {
    let folder = private_folder();
    let made = folder.path().join("made");
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let mode = std::fs::metadata(journal.path()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);

    let folder_entry = journal.record(Undo::RemoveFolder { path: made.clone() }).unwrap();
    assert!(std::fs::read_to_string(journal.path()).unwrap().contains("remove_folder"));
    std::fs::create_dir(&made).unwrap();
    journal.record(file(made.join("a"))).unwrap();
    std::fs::write(made.join("a"), "").unwrap();
    journal.record(file(made.join("never made"))).unwrap();
    assert_eq!(journal.pending(), 3);

    let results = journal.undo_all();
    let outcomes: Vec<&Outcome> = results.iter().map(|result| &result.outcome).collect();
    assert_eq!(outcomes, [&Outcome::AlreadyGone, &Outcome::Done, &Outcome::Done]);
    assert!(!made.exists());
    assert_eq!(journal.undo(folder_entry), None, "done is done");

    let path = journal.path().to_path_buf();
    drop(journal);
    assert!(!path.exists());
}

#[test]
fn dropping_the_last_journal_undoes_pending_changes() {
    let folder = private_folder();
    let made = folder.path().join("made");
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let copy = journal.clone();
    journal.record(file(made.clone())).unwrap();
    std::fs::write(&made, "").unwrap();
    drop(journal);
    assert!(made.exists());
    drop(copy);
    assert!(!made.exists());
}

#[test]
fn only_journals_of_dead_owners_are_replayed() {
    let folder = private_folder();
    let own = Journal::open(folder.path()).unwrap();
    let second = Journal::open(folder.path()).unwrap();
    assert_ne!(own.path(), second.path());
    let made = folder.path().join("made");
    std::fs::write(&made, "").unwrap();
    let left = leave(folder.path(), "1-1-0.jsonl", &[line(1, &file(made.clone()))]);
    std::fs::write(folder.path().join("2-2-0.jsonl"), "{\"kagiri_jour").unwrap();

    let leftovers = Journal::leftovers(folder.path(), Duration::ZERO).unwrap().journals;
    let paths: Vec<&Path> = leftovers.iter().map(|leftover| leftover.path()).collect();
    assert_eq!(paths, [left.as_path()]);
    for leftover in leftovers {
        assert_eq!(leftover.pending().count(), 1);
        assert!(leftover.replay().iter().all(|result| result.outcome == Outcome::Done));
    }
    assert!(!made.exists() && !left.exists() && own.path().exists());
    assert!(Journal::leftovers(&folder.path().join("none"), Duration::ZERO).unwrap().journals.is_empty());
}

#[test]
fn failed_undos_are_kept_and_others_continue() {
    let folder = private_folder();
    let made = folder.path().join("made");
    std::fs::write(&made, "").unwrap();
    // A folder cannot be removed as a file.
    let stuck = folder.path().join("stuck");
    std::fs::create_dir(&stuck).unwrap();
    let lines = [line(1, &file(made.clone())), line(2, &file(stuck.clone()))];
    let path = leave(folder.path(), "1-1-0.jsonl", &lines);

    let replay =
        || Journal::leftovers(folder.path(), Duration::ZERO).unwrap().journals.pop().unwrap().replay();
    let results = replay();
    assert!(matches!(results[0].outcome, Outcome::Failed(_)) && results[1].outcome == Outcome::Done);
    assert!(results[0].to_string().contains("stuck"));
    assert!(!made.exists() && path.exists());
    std::fs::remove_dir(&stuck).unwrap();
    assert_eq!(replay().len(), 1, "only what failed is tried again");
    assert!(!path.exists());
}

#[test]
fn foreign_objects_are_left_alone() {
    let folder = private_folder();
    let full = folder.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("somebody's"), "").unwrap();
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = i32::try_from(bystander.id()).unwrap();
    let own = i32::try_from(std::process::id()).unwrap();
    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let group = PathBuf::from("/sys/fs/cgroup/system.slice");
    for undo in [
        Undo::RemoveFolder { path: full.clone() },
        Undo::RemoveCgroup { folders: vec![group] },
        Undo::DeleteNetns { name: "somebody's".to_owned(), end_processes: true },
        Undo::DeleteNetns { name: "kagiri-/../x".to_owned(), end_processes: true },
        Undo::Unmount { target: "/proc".into(), source: "/dev/loop0".into() },
        Undo::KillProcess { pid: own, start_ticks: start_ticks(own), group: false },
        Undo::KillProcess { pid: 1, start_ticks: start_ticks(1), group: true },
    ] {
        let entry = journal.record(undo.clone()).unwrap();
        let outcome = journal.undo(entry).unwrap().outcome;
        assert!(matches!(outcome, Outcome::NotOurs(_)), "{undo}: {outcome:?}");
    }
    let later = Undo::KillProcess { pid, start_ticks: start_ticks(pid) - 1, group: true };
    let entry = journal.record(later).unwrap();
    assert_eq!(journal.undo(entry).unwrap().outcome, Outcome::AlreadyGone, "another process has that number");
    assert!(bystander.try_wait().unwrap().is_none());

    let right = Undo::KillProcess { pid, start_ticks: start_ticks(pid), group: false };
    let entry = journal.record(right).unwrap();
    assert_eq!(journal.undo(entry).unwrap().outcome, Outcome::Done);
    bystander.wait().unwrap();
    assert!(full.exists());
}

#[test]
fn group_members_end_with_their_leader() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    let folder = private_folder();
    let mut leader = Command::new("sh")
        .args(["-c", "sleep 600 & echo $!; read x"])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = i32::try_from(leader.id()).unwrap();
    let mut first = String::new();
    BufReader::new(leader.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let member: i32 = first.trim().parse().unwrap();
    let undo = Undo::KillProcess { pid, start_ticks: start_ticks(pid), group: true };
    drop(leader.stdin.take());
    leader.wait().unwrap();
    assert!(Path::new("/proc").join(member.to_string()).exists(), "the member lives on");

    let journal = Journal::open(&folder.path().join("journal")).unwrap();
    let entry = journal.record(undo.clone()).unwrap();
    assert_eq!(journal.undo(entry).unwrap().outcome, Outcome::Done);
    let entry = journal.record(undo).unwrap();
    assert_eq!(journal.undo(entry).unwrap().outcome, Outcome::AlreadyGone);
}

#[test]
fn only_files_are_undone_after_a_reboot() {
    let folder = private_folder();
    let made = folder.path().join("made");
    std::fs::write(&made, "").unwrap();
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = i32::try_from(bystander.id()).unwrap();
    let kill = Undo::KillProcess { pid, start_ticks: start_ticks(pid), group: false };
    let path = leave(folder.path(), "1-1-0.jsonl", &[line(1, &file(made.clone())), line(2, &kill)]);
    let text = std::fs::read_to_string(&path).unwrap();
    let start = text.find("boot_id\":\"").unwrap() + 10;
    let other_boot = format!("{}0000{}", &text[..start], &text[start + 4..]);
    std::fs::write(&path, other_boot).unwrap();
    let results = Journal::leftovers(folder.path(), Duration::ZERO).unwrap().journals.pop().unwrap().replay();
    assert_eq!(results[0].outcome, Outcome::AlreadyGone);
    assert_eq!(results[1].outcome, Outcome::Done);
    assert!(bystander.try_wait().unwrap().is_none() && !made.exists());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn newer_journals_and_unsafe_folders_are_refused() {
    let folder = private_folder();
    let path = leave(folder.path(), "1-1-0.jsonl", &[]);
    let text =
        std::fs::read_to_string(&path).unwrap().replace("\"kagiri_journal\":1", "\"kagiri_journal\":2");
    std::fs::write(&path, text).unwrap();
    let said = Journal::leftovers(folder.path(), Duration::ZERO).unwrap().unreadable[0].to_string();
    assert!(said.contains("newer"), "{said}");

    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(Journal::open(&open), Err(Error::Refused(_))));
    assert!(matches!(Journal::leftovers(&open, Duration::ZERO), Err(Error::Refused(_))));
    let link = folder.path().join("link");
    symlink(folder.path(), &link).unwrap();
    assert!(matches!(Journal::open(&link), Err(Error::Refused(_))));
}

#[test]
fn folder_of_another_user_is_named_with_its_owner_and_not_replayed() {
    if !nix::unistd::Uid::effective().is_root() {
        return features::skip("needs root to give a folder away");
    }
    let folder = private_folder();
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "").unwrap();
    let planted = folder.path().join("journals");
    std::fs::create_dir(&planted).unwrap();
    leave(&planted, "1-1-0.jsonl", &[line(1, &file(precious.clone()))]);
    std::os::unix::fs::chown(&planted, Some(65534), None).unwrap();
    for error in
        [Journal::open(&planted).unwrap_err(), Journal::leftovers(&planted, Duration::ZERO).unwrap_err()]
    {
        let said = error.to_string();
        assert!(said.contains("belongs to user 65534") && said.contains("remove it"), "{said}");
        assert!(said.contains(&*planted.to_string_lossy()), "{said}");
    }
    assert!(precious.exists());
}

#[test]
fn unreadable_journals_are_reported_and_others_replayed() {
    let folder = private_folder();
    let made = folder.path().join("made");
    std::fs::write(&made, "").unwrap();
    let unreadable = ["0-1-0.jsonl", "0-2-0.jsonl", "0-3-0.jsonl", "0-4-0.jsonl"];
    let [link, fifo, directory, header] = unreadable.map(|name| folder.path().join(name));
    symlink(&made, &link).unwrap();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(&header, "{\"kagiri_journax\":1}\n").unwrap();
    leave(folder.path(), "1-1-0.jsonl", &[line(1, &file(made.clone()))]);

    let found = Journal::leftovers(folder.path(), Duration::ZERO).unwrap();
    let reasons: Vec<String> = found.unreadable.iter().map(ToString::to_string).collect();
    for (name, reason) in unreadable.iter().zip(&reasons) {
        assert!(reason.contains(name), "{reason}");
    }
    assert_eq!((reasons.len(), found.journals.len()), (4, 1));
    found.journals.into_iter().for_each(|leftover| drop(leftover.replay()));
    assert!(!made.exists());
}

#[test]
fn damaged_lines_are_reported_until_the_file_is_removed() {
    let folder = private_folder();
    let made = folder.path().join("made");
    std::fs::write(&made, "").unwrap();
    let path = leave(folder.path(), "1-1-0.jsonl", &[line(1, &file(made.clone()))]);
    let mut text = std::fs::read_to_string(&path).unwrap();
    // One damaged line, and one that was cut short.
    text += "{\"id\":2,\"unxo\":{}}\n{\"id\":3,\"un";
    std::fs::write(&path, text).unwrap();
    for done in [1, 0] {
        let leftover = Journal::leftovers(folder.path(), Duration::ZERO).unwrap().journals.pop().unwrap();
        let damage = leftover.damage().unwrap().to_string();
        assert!(damage.contains("1 damaged lines") && damage.contains("1-1-0.jsonl"), "{damage}");
        assert_eq!(leftover.replay().len(), done);
        assert!(!made.exists() && path.exists());
    }
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("\n{\"done\":1}\n"));
}

/// Set for the process that is to be killed: the folder to work in.
const HOLD_IN: &str = "KAGIRI_TEST_JOURNAL_IN";

/// Not a test of its own: an owner that takes the kernel long to end, because it holds much memory.
#[test]
fn slow_owner() {
    let Some(folder) = std::env::var_os(HOLD_IN).map(PathBuf::from) else { return };
    let journal = Journal::open(&folder.join("journal")).unwrap();
    journal.record(file(folder.join("made"))).unwrap();
    std::fs::write(folder.join("made"), "").unwrap();
    let held = vec![1_u8; 1 << 30];
    println!("\nholding {}", held.len());
    loop {
        std::thread::park();
    }
}

#[test]
fn owner_that_is_being_killed_is_waited_for() {
    let folder = private_folder();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::slow_owner", "--nocapture"])
        .env(HOLD_IN, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.starts_with("holding")));
    let journals = folder.path().join("journal");
    assert!(Journal::leftovers(&journals, LONG).unwrap().journals.is_empty(), "its owner lives");
    // Not waited for: at first the kernel still frees its memory.
    owner.kill().unwrap();
    let mut found = Journal::leftovers(&journals, LONG).unwrap();
    assert_eq!((found.journals.len(), found.unreadable.len()), (1, 0));
    found.journals.pop().unwrap().replay();
    assert!(!folder.path().join("made").exists());
    owner.wait().unwrap();
}

#[test]
fn journal_that_another_program_undoes_is_waited_for_then_named() {
    let folder = private_folder();
    let path = leave(folder.path(), "1-1-0.jsonl", &[line(1, &file(folder.path().join("gone")))]);
    let first = Journal::leftovers(folder.path(), Duration::ZERO).unwrap().journals.pop().unwrap();
    let second = Journal::leftovers(folder.path(), Duration::ZERO).unwrap();
    let reason = second.unreadable[0].to_string();
    assert!(reason.contains("another program is undoing it") && reason.contains("1-1-0"), "{reason}");
    let replay = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        first.replay();
    });
    let third = Journal::leftovers(folder.path(), LONG).unwrap();
    assert_eq!((third.journals.len(), third.unreadable.len()), (0, 0), "the first has undone it");
    assert!(!path.exists());
    replay.join().unwrap();
}
