//! Prints `src/abi.rs`, generated from `include/bb_abi.h` (`just gen`).

use bindgen::callbacks::{DeriveInfo, ParseCallbacks, TypeKind};

/// `IntoBytes` refuses implicit padding, so a struct with a hole does not compile.
#[derive(Debug)]
struct Derives;

impl ParseCallbacks for Derives {
    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        match info.kind {
            TypeKind::Struct => ["FromBytes", "IntoBytes", "Immutable", "KnownLayout"]
                .map(|name| format!("zerocopy::{name}"))
                .to_vec(),
            _ => Vec::new(),
        }
    }
}

fn main() -> Result<(), bindgen::BindgenError> {
    const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let bindings = bindgen::Builder::default()
        .header(format!("{INCLUDE}/bb_abi.h"))
        .allowlist_file(".*/bb_([a-z]+_)?abi\\.h")
        .allowlist_file(".*/bb_counters\\.h")
        // What only native tests need.
        .header(format!("{INCLUDE}/bb_frame.h"))
        .allowlist_type("bb_(piece|place)")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        .layout_tests(true)
        .generate_comments(false)
        .parse_callbacks(Box::new(Derives))
        .disable_header_comment()
        .raw_line("//! Generated from `include/bb_abi.h` by `just gen`; do not edit.")
        .raw_line("#![allow(missing_docs, non_camel_case_types, clippy::all)]")
        .formatter(bindgen::Formatter::Rustfmt)
        .generate()?;
    print!("{bindings}");
    Ok(())
}
