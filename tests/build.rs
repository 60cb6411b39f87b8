//! Compiles the test classifiers (`bpf/*.bpf.c`).

use std::{env, path::PathBuf, process::Command};

fn main() {
    let dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let clang = env::var_os("BESTBY_CLANG").unwrap_or_else(|| "clang-19".into());
    let libbpf = env::var_os("DEP_BPF_INCLUDE").expect("set by libbpf-sys");
    println!("cargo:rerun-if-env-changed=BESTBY_CLANG");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=../bpf/include");
    for name in ["hop", "stamp", "strip"] {
        let done = Command::new(&clang)
            .args([
                "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror",
            ])
            .arg("-I")
            .arg(dir.join("../bpf/include"))
            .arg("-isystem")
            .arg(&libbpf)
            .args(["-isystem", "/usr/include/x86_64-linux-gnu", "-c"])
            .arg(dir.join(format!("bpf/{name}.bpf.c")))
            .arg("-o")
            .arg(out.join(format!("{name}.bpf.o")))
            .status();
        match done {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("{name}.bpf.c does not compile: {status}"),
            Err(error) => panic!("running {}: {error}", clang.display()),
        }
    }
}
