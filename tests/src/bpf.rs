//! The BPF programs that the kernel has loaded.

use std::process::Command;

/// The numbers of the BPF programs that a process has loaded (proc(5), "fdinfo").
pub fn loaded_programs(pid: u32) -> Vec<u32> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs");
    let texts = files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let of_line = |line: &str| line.strip_prefix("prog_id:")?.trim().parse().ok();
    texts.filter_map(|text| text.lines().find_map(of_line)).collect()
}

/// Whether the kernel has a BPF program of any of these numbers (bpf(2), BPF_PROG_GET_FD_BY_ID).
pub fn is_any_loaded(ids: &[u32]) -> bool {
    let lines = format!(
        "import ctypes, errno, sys\n\
         def there(id):\n  \
           found = ctypes.CDLL(None, use_errno=True).syscall({}, 13, (ctypes.c_uint32 * 32)(id), 12)\n  \
           assert found >= 0 or ctypes.get_errno() == errno.ENOENT, ctypes.get_errno()\n  \
           return found >= 0\n\
         print(any(there(id) for id in {ids:?}))",
        if cfg!(target_arch = "x86_64") { 321 } else { 280 }
    );
    let asked = Command::new("python3").args(["-c", &lines]).output().expect("python3 starts");
    match asked.stdout.trim_ascii() {
        b"True" => true,
        b"False" => false,
        _ => panic!("the kernel does not list them: {}", String::from_utf8_lossy(&asked.stderr)),
    }
}
