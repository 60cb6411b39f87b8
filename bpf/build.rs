//! Compiles the BPF programs with clang; any warning is an error.
//!
//! - `maps` and `qdisc` get libbpf skeletons (libbpf loads struct_ops objects
//!   and creates the pinned maps),
//! - the hook programs become plain objects, embedded for Aya,
//! - `bb_core.h` is compiled natively too, for the property tests.
//!
//! `BESTBY_CLANG` names another clang than `clang-19`.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use libbpf_cargo::SkeletonBuilder;

/// Loaded by libbpf through a generated skeleton.
const SKELETONS: [&str; 2] = ["maps", "qdisc"];
/// Loaded by Aya from the bytes of the object.
const OBJECTS: [&str; 4] = ["classify", "segment", "sockopt", "rtt"];

fn main() -> Result<()> {
    let dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").context("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR")?);
    let clang = env::var_os("BESTBY_CLANG").unwrap_or_else(|| OsString::from("clang-19"));
    println!("cargo:rerun-if-env-changed=BESTBY_CLANG");
    println!("cargo:rerun-if-changed=include");

    for name in SKELETONS.iter().chain(&OBJECTS) {
        let source = dir.join(format!("{name}.bpf.c"));
        println!("cargo:rerun-if-changed={}", source.display());
        let object = out.join(format!("{name}.bpf.o"));
        compile(&clang, &dir, &source, &object)?;
        if SKELETONS.contains(name) {
            SkeletonBuilder::new()
                .obj(&object)
                .generate(out.join(format!("{name}.skel.rs")))
                .with_context(|| format!("skeleton of {name}"))?;
        }
    }

    println!("cargo:rerun-if-changed=src/core_native.c");
    cc::Build::new()
        .file(dir.join("src/core_native.c"))
        .include(dir.join("include"))
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Werror")
        .compile("bb_core");
    Ok(())
}

fn compile(clang: &OsString, dir: &Path, source: &Path, object: &Path) -> Result<()> {
    let libbpf = env::var_os("DEP_BPF_INCLUDE").context("libbpf-sys names no include directory")?;
    let output = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror",
        ])
        .arg("-I")
        .arg(dir.join("include"))
        .arg("-isystem")
        .arg(&libbpf)
        // Debian keeps asm/types.h in the multiarch directory, which the bpf target does not search.
        .args(["-isystem", "/usr/include/x86_64-linux-gnu"])
        // Debug paths relative to the crate: the object does not depend on where it was built.
        .arg(format!("-ffile-prefix-map={}=bpf", dir.display()))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .with_context(|| {
            format!(
                "running {} (Debian: apt-get install clang-19; or set BESTBY_CLANG)",
                Path::new(clang).display()
            )
        })?;
    if !output.status.success() {
        bail!(
            "{} does not compile:\n{}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
