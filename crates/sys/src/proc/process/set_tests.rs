use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// A sample process below a root: `stat`, `statm`, and per thread a `schedstat` and its `children`.
fn sample(root: &Path, pid: i32, parent: i32, threads: &[(i32, &str, Option<&str>)]) {
    let folder = root.join("proc").join(pid.to_string());
    for (thread, schedstat, children) in threads {
        let task = folder.join("task").join(thread.to_string());
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(task.join("schedstat"), schedstat).unwrap();
        if let Some(children) = children {
            std::fs::write(task.join("children"), children).unwrap();
        }
    }
    let stat =
        format!("{pid} (ngi) nx) S {parent} {pid} 1 0 -1 4194560 1 0 0 0 7 3 0 0 20 0 1 0 5511 9 9 1\n");
    std::fs::write(folder.join("stat"), stat).unwrap();
    std::fs::write(folder.join("statm"), "732 420 391 6 0 89 0\n").unwrap();
}

#[test]
fn two_processes_with_three_threads_are_summed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    sample(root, 100, 1, &[(100, "1000 10 1\n", Some("200 ")), (101, "2000 20 1\n", Some(""))]);
    sample(root, 200, 100, &[(200, "4000 40 1\n", Some(""))]);
    sample(root, 300, 1, &[(300, "9999 99 1\n", Some(""))]);
    let mut set = ProcessSet::open(root, &[100]).unwrap();
    assert_eq!(set.pids().collect::<Vec<_>>(), [100, 200]);
    let expected = ProcessCpuReading { cpu_ns: 7000, run_wait_ns: Some(70), processes: 2, threads: 3 };
    assert_eq!(set.read_cpu(), expected);
    let memory = set.read_memory().unwrap();
    assert_eq!(memory.rss_bytes, 2 * 420 * set.page_bytes);
    assert_eq!(memory.anonymous_bytes, 2 * 29 * set.page_bytes);

    // A thread ends and a process ends: totals stay.
    std::fs::remove_dir_all(root.join("proc/100/task/101")).unwrap();
    std::fs::remove_dir_all(root.join("proc/200")).unwrap();
    std::fs::write(root.join("proc/100/task/100/schedstat"), "1500 15 2\n").unwrap();
    set.scan();
    let expected = ProcessCpuReading { cpu_ns: 7500, run_wait_ns: Some(75), processes: 1, threads: 1 };
    assert_eq!(set.read_cpu(), expected);

    // A later process with the number of the ended one is not mistaken for it, and is not ours.
    sample(root, 200, 1, &[(200, "1 1 1\n", Some(""))]);
    std::fs::write(root.join("proc/100/task/100/children"), "").unwrap();
    set.scan();
    assert_eq!(set.read_cpu(), expected);
}

#[test]
fn children_are_found_by_parent_without_children_files() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    sample(root, 100, 1, &[(100, "1 1 1\n", None)]);
    sample(root, 200, 100, &[(200, "1 1 1\n", None)]);
    sample(root, 300, 200, &[(300, "1 1 1\n", None)]);
    sample(root, 400, 1, &[(400, "1 1 1\n", None)]);
    let set = ProcessSet::open(root, &[100]).unwrap();
    assert_eq!(set.pids().collect::<Vec<_>>(), [100, 200, 300]);
    assert_eq!(group_of(root, 300), Some(300));
}

#[test]
fn missing_schedstat_gives_no_waiting_time() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    sample(root, 100, 1, &[(100, "1 1 1\n", Some(""))]);
    std::fs::remove_file(root.join("proc/100/task/100/schedstat")).unwrap();
    let mut set = ProcessSet::open(root, &[100]).unwrap();
    assert_eq!(set.read_cpu().run_wait_ns, None);
}

#[test]
fn missing_process_is_reported() {
    assert_eq!(ProcessSet::open(Path::new("/"), &[i32::MAX]).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(ProcessSet::open(Path::new("/"), &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn cpu_of_a_grandchild_is_counted() {
    // The shell waits for its child, which spins until its input ends, so the CPU time is the grandchild's.
    let script = "sh -c 'echo ready; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo done; read x' \
                  </dev/fd/0; :";
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let mut set = ProcessSet::open(Path::new("/"), &[pid]).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    let reading = set.read_cpu();
    assert_eq!(reading.processes, 2);
    assert!(reading.cpu_ns > 1_000_000, "60,000 rounds of a shell loop take more than 1 ms: {reading:?}");
    assert!(reading.run_wait_ns.is_some());
    assert!(set.read_memory().unwrap().rss_bytes > 100_000);
    assert!(set.proportional_bytes().is_none_or(|pss| pss > 0));

    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child.wait().unwrap();
    set.scan();
    let after = set.read_cpu();
    assert_eq!(after.processes, 0);
    assert!(after.cpu_ns >= reading.cpu_ns, "what ended processes used stays counted");
    assert_eq!(set.read_memory(), None);
}

#[test]
fn thread_between_two_scans_is_counted() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let mut set = ProcessSet::open(Path::new("/"), &[pid]).unwrap();
    let before = set.read_cpu().cpu_ns;
    let spin = || {
        let until = crate::thread::thread_cpu_ns() + 30_000_000;
        while crate::thread::thread_cpu_ns() < until {
            std::hint::black_box(0);
        }
    };
    std::thread::spawn(spin).join().unwrap();
    assert!(set.read_cpu().cpu_ns >= before + 20_000_000, "the process clock knows ended threads");
}
