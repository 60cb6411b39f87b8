//! `include/bestby.h` encodes exactly as the crate, compiled as C and as C++.

#![allow(clippy::unwrap_used)]

use std::{
    env,
    fmt::Write as _,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use bestby::{
    AduId, Deadline, Expiry, Lifetime, Magic, Mark, Metadata, Priority, Treatment, ValueError,
};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRng, TestRunner},
};

const UNIT: u64 = 250_000;
const CIRCLE: u64 = UNIT << 19;
const UNSET: u8 = 255;

#[derive(Clone, Debug)]
struct Case {
    deadline: u64,
    lifetime: u64,
    priority: u8,
    treatment: u8,
    adu: u8,
    now: u64,
    magic: u32,
    /// When the data path reads the mark.
    read_at: u64,
}

impl Case {
    /// What the C program prints for this case, from the crate.
    fn expected(&self) -> String {
        match self.encode() {
            Ok((mark, read)) => {
                format!(
                    "{} {read} {}",
                    mark.get(),
                    if self.adu == 0 { 1 } else { self.adu % 7 + 1 }
                )
            }
            Err(ValueError::DeadlineTooFar(_) | ValueError::Lifetime(_)) => "ERANGE".to_owned(),
            Err(_) => "EINVAL".to_owned(),
        }
    }

    fn encode(&self) -> Result<(Mark, u64), ValueError> {
        let mut metadata = Metadata::new();
        let magic = Magic::new(self.magic, 0xF000_0000)?;
        if self.priority != UNSET {
            metadata = metadata.priority(Priority::new(self.priority)?);
        }
        if self.adu != 0 {
            metadata = metadata.adu(AduId::new(self.adu)?);
        }
        match self.treatment {
            1 => metadata = metadata.treatment(Treatment::Forward),
            2 => metadata = metadata.treatment(Treatment::Discard),
            3 => metadata = metadata.treatment(Treatment::Truncate),
            _ => {}
        }
        if self.lifetime > 0 {
            metadata = metadata.lifetime(Lifetime::new(Duration::from_nanos(self.lifetime))?);
        } else if self.deadline > 0 {
            metadata = metadata.deadline(Deadline::from_monotonic_ns(self.deadline));
        }
        let mark = Mark::encode(&metadata, self.now, magic)?;
        let read = match mark.decode(self.read_at, magic).unwrap().get_expiry() {
            Expiry::Unset => 0,
            Expiry::At(deadline) => deadline.as_monotonic_ns(),
            Expiry::After(lifetime) => self.read_at + lifetime.as_nanos(),
        };
        Ok((mark, read))
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let now = prop_oneof![
        0..2 * CIRCLE,
        (0u64..1000).prop_map(|n| n * CIRCLE),
        0..1u64 << 60
    ];
    let offset = prop_oneof![
        -70_000_000_000i64..70_000_000_000,
        -1_000_000i64..1_000_000,
        Just(65_000_000_000),
        Just(65_000_000_001),
        Just(-30_000_000_001),
        Just(i64::MAX / 2),
    ];
    let lifetime = prop_oneof![
        0..2 * UNIT,
        0..140_000_000_000u64,
        Just(131_000_000_000),
        Just(u64::MAX)
    ];
    let priority = prop_oneof![4 => 0..8u8, 1 => Just(UNSET), 1 => 8..20u8];
    let magic = prop_oneof![4 => Just(0xB000_0000u32), 1 => (0..16u32).prop_map(|m| m << 28), 1 => Just(0xB)];
    // Up to the point where a past deadline reads as one to come.
    let antipode = (0..8u64).prop_map(|n| CIRCLE / 2 + n * UNIT);
    let late = prop_oneof![0..500_000_000u64, 0..65_000_000_000u64, antipode];
    (
        now,
        offset,
        lifetime,
        any::<bool>(),
        priority,
        0..4u8,
        0..9u8,
        magic,
        late,
    )
        .prop_map(
            |(now, offset, lifetime, relative, priority, treatment, adu, magic, late)| Case {
                deadline: if relative {
                    0
                } else {
                    now.saturating_add_signed(offset)
                },
                lifetime: if relative { lifetime } else { 0 },
                priority,
                treatment,
                adu,
                now,
                magic,
                read_at: now + late,
            },
        )
}

fn check(compiler: &str, flags: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("header");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(compiler)
        .args(flags)
        .args([
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Wshadow",
            "-Wcast-qual",
            "-Werror",
        ])
        .arg("-I")
        .arg(root.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(root.join("tests/header.c"))
        .output()
        .unwrap_or_else(|error| {
            panic!("running {compiler} (a C and C++ compiler is needed): {error}")
        });
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let cases: Vec<Case> = (0..20_000)
        .map(|_| cases().new_tree(&mut runner).unwrap().current())
        .collect();
    let mut input = String::new();
    for case in &cases {
        let Case {
            deadline,
            lifetime,
            priority,
            treatment,
            adu,
            now,
            magic,
            read_at,
        } = case;
        writeln!(
            input,
            "{deadline} {lifetime} {priority} {treatment} {adu} {now} {magic} {read_at}"
        )
        .unwrap();
    }
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();

    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("32 168"),
        "sizes of bestby_peer and bestby_counters"
    );
    assert_eq!(
        lines.next(),
        Some("6 6 5 3 4 2 1 1"),
        "SO_PRIORITY of the priorities"
    );
    let (mut marks, mut errors) = (0, 0);
    for case in &cases {
        let line = lines.next().unwrap();
        assert_eq!(line, case.expected(), "{compiler}: {case:?}");
        if line.starts_with('E') {
            errors += 1
        } else {
            marks += 1
        }
    }
    assert!(
        marks > 5_000 && errors > 1_000,
        "{marks} marks, {errors} errors: one-sided cases"
    );
}

#[test]
fn header_in_c99_encodes_as_the_crate() {
    check(
        &env::var("CC").unwrap_or_else(|_| "cc".to_owned()),
        &["-std=c99"],
    );
}

#[test]
fn header_in_cxx11_encodes_as_the_crate() {
    let flags = ["-std=c++11", "-xc++"];
    match env::var("CXX") {
        Ok(compiler) => check(&compiler, &flags),
        Err(_) if Command::new("c++").arg("--version").output().is_ok() => check("c++", &flags),
        // What builds the BPF programs; the header needs nothing of the C++ library.
        Err(_) => check("clang++-19", &[flags[0], flags[1], "-nostdlib++"]),
    }
}
