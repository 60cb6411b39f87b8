//! Which licence stands in which file. bestbyd (MIT OR Apache-2.0) links what this crate compiles for the host, beside
//! crates that are Apache-2.0 only; a file of the GPL alone must not be among that.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// For the kernel alone.
const KERNEL: &str = "SPDX-License-Identifier: GPL-2.0-only";
/// Linked into programs.
const LINKED: &str = "SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0";

fn files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "c" || e == "h"));
    files.sort();
    files
}

/// Whether no host program contains it: `*.bpf.[ch]`, and the kernel's own types.
fn for_the_kernel(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_str().unwrap();
    name.contains(".bpf.") || name == "vmlinux.h"
}

#[test]
fn file_that_is_linked_into_a_program_is_not_of_the_gpl_alone() {
    let (mut linked, mut kernel) = (0, 0);
    for file in [".", "include", "src"].into_iter().flat_map(files) {
        let text = fs::read_to_string(&file).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let stated = first.trim_start_matches(['/', '*', ' ']);
        let stated = stated.trim_end_matches([' ', '*', '/']);
        let expected = match for_the_kernel(&file) {
            true => KERNEL,
            false => LINKED,
        };
        assert_eq!(stated, expected, "{}", file.display());
        match for_the_kernel(&file) {
            true => kernel += 1,
            false => linked += 1,
        }
    }
    assert!(linked > 10 && kernel > 40, "{linked} {kernel}");
}

#[test]
fn file_that_is_linked_into_a_program_includes_nothing_of_the_kernel_alone() {
    for file in ["include", "src"].into_iter().flat_map(files) {
        if for_the_kernel(&file) {
            continue;
        }
        for line in fs::read_to_string(&file).unwrap().lines() {
            let Some(name) = line.strip_prefix("#include \"") else {
                continue;
            };
            let name = name.trim_end_matches('"');
            assert!(
                !for_the_kernel(Path::new(name)),
                "{}: {name}",
                file.display()
            );
        }
    }
}
