//! Compiles the BPF programs with clang; any warning is an error.
//!
//! - `maps`, `qdisc` and `real` get libbpf skeletons (libbpf loads struct_ops objects
//!   and creates the pinned maps),
//! - the hook programs become plain objects, embedded for Aya,
//! - `bb_core.h`, `bb_frame.h`, `bb_real.h`, `bb_role.h`, `bb_srt.h`, `bb_ts.h` and the whole queue are compiled
//!   natively too, for the property tests.
//!
//! `BESTBY_CLANG` names another clang than `clang-19`.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use libbpf_cargo::SkeletonBuilder;

/// Loaded by libbpf through a generated skeleton.
const SKELETONS: [&str; 4] = ["maps", "qdisc", "floor", "real"];
/// Loaded by Aya from the bytes of the object.
const OBJECTS: [&str; 8] = [
    "classify",
    "leaf",
    "segment",
    "sockopt",
    "buffer",
    "rtt",
    "answer",
    "real_hooks",
];

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
        compile(&clang, &dir, name, &source, &object)?;
        if SKELETONS.contains(name) {
            SkeletonBuilder::new()
                .obj(&object)
                .generate(out.join(format!("{name}.skel.rs")))
                .with_context(|| format!("skeleton of {name}"))?;
        }
    }

    let native = ["core", "frame", "real", "role", "srt", "ts"]
        .map(|name| dir.join(format!("src/{name}_native.c")));
    for source in &native {
        println!("cargo:rerun-if-changed={}", source.display());
    }
    cc::Build::new()
        .files(&native)
        .include(dir.join("include"))
        .flag("-fno-strict-aliasing")
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Werror")
        .compile("bb_core");
    // By clang: gcc has not all that the queue's headers ask for. For tests alone: it is under the GPL, and no program
    // links it.
    println!("cargo:rerun-if-changed=tests/native/queue.c");
    println!(
        "cargo:rustc-link-arg-tests={}",
        out.join("libbb_queue.a").display()
    );
    cc::Build::new()
        .file(dir.join("tests/native/queue.c"))
        .cargo_metadata(false)
        .compiler(&clang)
        .include(dir.join("include"))
        .flag("-isystem")
        .flag(libbpf_headers()?)
        .define("__TARGET_ARCH_x86", None)
        .define("BPF_NO_PRESERVE_ACCESS_INDEX", None)
        .flag("-fno-strict-aliasing")
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Wno-unused-parameter")
        .flag("-Wno-parentheses")
        .flag("-Werror")
        .opt_level(1)
        .compile("bb_queue");
    natively(&dir, &out, &dir.join("include"), None)?;
    for (number, mutant) in MUTANTS.iter().enumerate() {
        let headers = out.join(format!("mutant{number}"));
        fs::create_dir_all(&headers)?;
        for name in ["bb_table.h", "bb_answer.h"] {
            let mut text = fs::read_to_string(dir.join("include").join(name))?;
            if name == mutant.0 {
                if text.matches(mutant.1).count() != 1 {
                    bail!("{name} does not have this once: {}", mutant.1);
                }
                text = text.replace(mutant.1, mutant.2);
            }
            fs::write(headers.join(name), text)?;
        }
        natively(&dir, &out, &headers, Some(number))?;
    }
    Ok(())
}

/// The table's protocol with one step taken out: header, what is there, what stands there instead.
/// bpf/tests/table.rs sees each of them fail.
const MUTANTS: [(&str, &str, &str); 6] = [
    // Today's fault of sessions: no second look after the claim.
    (
        "bb_table.h",
        "if ((BB_T_IDLE_NS) && bb_owner_tag(owner) != BB_WAY_FREE &&",
        "if (0 && bb_owner_tag(owner) != BB_WAY_FREE &&",
    ),
    // The reader does not look again after its touch.
    (
        "bb_table.h",
        "return bb_way_owner(way) == owner;",
        "return bb_way_owner(way) == owner || 1;",
    ),
    // The reader does not touch.
    (
        "bb_table.h",
        "__sync_bool_compare_and_swap(&way->used_ns, used, now);",
        "(void)now;",
    ),
    // Two entries of one key: the adder publishes without a look at others.
    (
        "bb_table.h",
        "if (rival == BB_WAY_FREE) {",
        "if (rival == BB_WAY_FREE || 1) {",
    ),
    // A way that somebody held goes back to its key, which another may have added meanwhile.
    ("bb_table.h", "bb_owner(BB_WAY_ORPHAN, *gen));", "owner);"),
    // Today's fault of flows: whoever has an answer writes it.
    (
        "bb_answer.h",
        "__sync_bool_compare_and_swap(word, before, after);",
        "*(volatile __u64 *)word = after & BB_ANSWER_MASK | *word & ~BB_ANSWER_MASK;",
    ),
];

/// `table_native.c` with these headers; the functions of a mutant have its number in their names.
fn natively(dir: &Path, out: &Path, headers: &Path, mutant: Option<usize>) -> Result<()> {
    println!("cargo:rerun-if-changed=src/table_native.c");
    let mut build = cc::Build::new();
    build
        .file(dir.join("src/table_native.c"))
        .include(headers)
        .include(dir.join("include"))
        .out_dir(out.join(mutant.map_or("native".into(), |n| format!("native{n}"))))
        .flag("-fno-strict-aliasing")
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Wno-parentheses")
        // The search takes a while; and gcc reorders what it may only there.
        .opt_level(2)
        .flag("-Werror");
    if let Some(number) = mutant {
        build.define("BBN(name_)", Some(format!("name_##_{number}").as_str()));
    }
    build.compile(&mutant.map_or("bb_table".into(), |n| format!("bb_table_{n}")));
    Ok(())
}

fn libbpf_headers() -> Result<OsString> {
    env::var_os("DEP_BPF_INCLUDE").context("libbpf-sys names no include directory")
}

fn compile(clang: &OsString, dir: &Path, name: &str, source: &Path, object: &Path) -> Result<()> {
    let libbpf = libbpf_headers()?;
    // What the oldest kernels that run it know. v4 stores constants without a register.
    let cpu = match name {
        "qdisc" | "floor" => "-mcpu=v4",
        _ => "-mcpu=v3",
    };
    let output = Command::new(clang)
        .args([
            "-target",
            "bpf",
            cpu,
            "-g",
            "-O2",
            "-fno-strict-aliasing",
            "-Wall",
            "-Werror",
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
